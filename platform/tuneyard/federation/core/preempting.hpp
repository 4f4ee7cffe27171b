// Preemption: asks that may preempt, their candidates, and pools without victims. As candidates.py and preemption.py.
#pragma once

#include <set>

#include "victims.hpp"

namespace tuneyard {

constexpr size_t kTightest = 4;
constexpr int kMostSearches = 24;
constexpr size_t kMostRemembered = 100000;
constexpr int kPriorities = 4, kUrgent = 3;

struct Kind {
  long long shape;
  int priority, team;  // team -1: the quota of the team does not matter
  bool has_starved, is_patient;
  double since;  // from when on borrowing attempts count as begun while the ask waited, where that matters
  bool operator<(const Kind& other) const {
    return std::tie(shape, priority, team, has_starved, is_patient, since) <
           std::tie(other.shape, other.priority, other.team, other.has_starved, other.is_patient, other.since);
  }
};

// Kinds of asks for which no victims were found, remembered until a relevant change.
class Refusals {
 public:
  Refusals(Pools& pools, Teams& teams) : pools_(pools), teams_(teams) {}

  void begin() {
    if (known_.size() > kMostRemembered) known_.clear();
  }

  // No victims were found for asks of this kind, and none will be before `until` where nothing changes.
  void refuse(const Kind& kind, const Reservations& reservations, double until) {
    Refusal made{pools_.layout, teams_.version, pools_.changes, teams_.changes, until, {}};
    for (auto& each : reservations) made.claimed.insert(each.pool->index);
    known_[kind] = std::move(made);
  }

  // Pools of `pools` where victims may be found since the last search. `until`: when attempts that it spared become candidates.
  std::vector<int> worth_a_look(const Kind& kind, const std::vector<int>& pools, double now, double& until) {
    until = kInfinity;
    auto found = known_.find(kind);
    if (found == known_.end()) return pools;
    const Refusal& known = found->second;
    if (now >= known.until || known.layout != pools_.layout || known.rules != teams_.version) return pools;
    if (kind.team >= 0 && teams_.changed_at(kind.team) > known.teams) return pools;
    until = known.until;
    if (known.pools == pools_.changes && known.claimed.empty()) return {};
    std::vector<bool> grown;
    if (kind.team >= 0) grown = teams_.grown_since(known.teams);
    std::vector<int> worth;
    for (int index : pools) {
      Pool& pool = *pools_.all[index];
      bool is_worth = pool.version > known.pools || known.claimed.count(index);
      if (!is_worth && kind.team >= 0) {
        for (int team : pool.teams()) is_worth = is_worth || grown[team];
      }
      if (is_worth) worth.push_back(index);
    }
    return worth;
  }

 private:
  struct Refusal {
    long long layout, rules, pools, teams;
    double until;
    std::set<int> claimed;
  };
  Pools& pools_;
  Teams& teams_;
  std::map<Kind, Refusal> known_;
};

struct Making {
  Attempts going;
  bool is_kept = false;
  Reservation kept;
};

class Preempting {
 public:
  Preempting(const Policy& policy, Pools& pools, Teams& teams, Promises& promises)
      : policy_(policy), pools_(pools), teams_(teams), promises_(promises), overhead_s_(policy.grace_s + policy.restart_s), refusals_(pools, teams) {}

  double again_at = kInfinity;
  bool unfinished = false;

  void begin(double now) {
    now_ = now;
    searches_ = 0;
    none_go_for_.clear();
    kept_.clear();
    refused_now_.clear();
    again_at = kInfinity;
    unfinished = false;
    refusals_.begin();
  }

  void count(const Attempt& attempt, int sign) {
    stopping_ += sign * attempt.stopping;
    if (attempt.preemptible || attempt.stopping) by_priority_[attempt.priority] += sign;
  }

  // Whether a search for victims makes sense now.
  bool may(const Ask& ask) { return may(ask.priority, ask.team, *ask.shape, ask.created, ask.seconds); }
  bool first_may(const Line& line) { return may(line.priority, line.team, *line.shape, line.created, line.first_s); }

  // Whether no ask of a group may preempt, while asks of this priority are considered.
  bool nobody_may(const Group& group, int priority) {
    Gpus workers = group.shape->worlds.back();
    if (!policy_.preempts || !workers) return true;
    for (int lower = 0; lower < priority; ++lower) {
      if (by_priority_[lower] > 0) return false;
    }
    if (policy_.starves_from && workers >= policy_.starves_from) return false;
    return std::none_of(group.lines.begin(), group.lines.end(), [&](const Line* line) { return teams_[line->team].team.has_quota; });
  }

  bool has_starved(const Ask& ask) { return has_starved(ask.team, ask.last_world(), ask.created, ask.seconds); }

  Making make_room(const Ask& ask, double now, const Reservations& reservations) {
    if (!teams_[ask.team].team.closed.empty()) return {};
    std::vector<int> pools;
    for (int index : ask.shape->allowed) {
      if (pools_.all[index]->usable) pools.push_back(index);
    }
    int team = team_that_matters(ask);
    bool patient = is_patient(ask.created);
    Kind kind{ask.shape->serial, ask.priority, team, has_starved(ask), patient, team >= 0 && patient ? ask.created : kInfinity};
    if (stopping_ && !none_go_for_.count(kind)) {
      Making made;
      if (by_those_who_go(ask, pools, now, reservations, made.kept)) {
        made.is_kept = true;
        return keep(std::move(made));
      }
      none_go_for_.insert(kind);
    }
    if (refused_now_.count(kind)) return {};
    std::vector<int> worth = refusals_.worth_a_look(kind, pools, now, settles_);
    if (!worth.empty() && searches_ >= kMostSearches) {
      unfinished = true;
      return {};
    }
    Best best;
    if (!cheapest(ask, worth, now, reservations, best)) {
      refused_now_.insert(kind);
      if (!(kind.team >= 0 && promises_.has_of(kind.team))) refusals_.refuse(kind, reservations, settles_);
      again_at = std::min(again_at, settles_);
      return {};
    }
    std::vector<Ending> stopping = endings(*best.pool);
    for (const Attempt* each : best.victims.attempts) {
      if (each->pool == best.pool->index) stopping.push_back({each, now + policy_.grace_s});
    }
    std::sort(stopping.begin(), stopping.end(), ending_before);
    Takes claimed = claimed_in(*best.pool, reservations, ask.shape->avoided(*best.pool));
    Start start;
    Making made;
    made.going = best.victims.attempts;
    if (start_in(*best.pool, ask.shape->smallest(best.pool->sku) / best.size, best.size, now, claimed, &stopping, start)) {
      made.is_kept = true;
      made.kept = reservation(ask.key, start);
    }
    return keep(std::move(made));
  }

  // Whether an ask stays within its team's own quota of a SKU, beside quota reserved for the team in this cycle.
  bool may_reclaim(const Ask& ask, int sku) { return takes_back_of(ask, sku); }

  // Whether an ask may preempt an attempt at some time, however long it waits.
  bool may_ever_go(const Attempt& attempt, const Ask& ask, double now) const {
    if (attempt.stopping) return true;
    if (!policy_.preempts || !attempt.preemptible || attempt.priority > ask.priority) return false;
    return attempt.priority < ask.priority || has_saved(attempt, now);
  }

 private:
  struct Candidates {
    Attempts attempts;
    std::vector<const Attempt*> taken_back;
    std::map<int, Gpus> borrowed;
  };
  struct Best {
    Victims victims;
    Pool* pool = nullptr;
    Gpus size = 0;
  };
  struct Known {
    long long version = -1;
    Attempts attempts;
    std::vector<int> teams;
  };

  const Policy& policy_;
  Pools& pools_;
  Teams& teams_;
  Promises& promises_;
  double overhead_s_, now_ = 0.0, settles_ = kInfinity;
  Refusals refusals_;
  long long by_priority_[kPriorities] = {0, 0, 0, 0};
  long long stopping_ = 0;
  int searches_ = 0;
  std::map<std::pair<int, int>, Known> lower_in_, equal_in_;
  std::set<Kind> none_go_for_, refused_now_;
  std::unordered_map<int, Gpus> kept_;

  bool may(int priority, int team, const Shape& shape, double created, double seconds) {
    Gpus workers = shape.worlds.back();
    if (!policy_.preempts || !workers) return false;
    for (int lower = 0; lower < priority; ++lower) {
      if (by_priority_[lower] > 0) return true;
    }
    if (!by_priority_[priority]) return false;
    if (has_starved(team, workers, created, seconds)) return true;
    if (!takes_back(team, shape)) return false;
    if (!is_patient(created)) again_at = std::min(again_at, created + policy_.settled_s);
    return is_patient(created);
  }

  // Whether an ask has waited long enough to reclaim quota.
  bool is_patient(double created) const { return now_ >= created + policy_.settled_s; }

  bool has_starved(int team, Gpus workers, double created, double seconds) {
    if (!policy_.starves_from || workers < policy_.starves_from || teams_[team].team.has_quota) return false;
    return now_ - created >= std::max(policy_.starves_least_s, policy_.starves_after * seconds);
  }

  Making keep(Making made) {
    if (made.is_kept) {
      for (auto [id, gpus] : made.kept.needs) kept_[made.kept.pool->index] += gpus;
    }
    return made;
  }

  static std::vector<Ending> endings(const Pool& pool) {
    std::vector<Ending> found;
    if (!pool.stopping) return found;
    for (const Attempt* each : pool.running) {
      if (each->stopping) found.push_back({each, each->ends});
    }
    return found;
  }

  std::vector<Deficit> missing(const Ask& ask, int sku) {
    return teams_.deficits(ask.team, sku, ask.shape->smallest(sku) + promises_.gpus(ask.team, sku));
  }

  bool takes_back_of(int team, const Shape& shape, int sku) {
    return teams_.within_quota(team, sku, shape.smallest(sku) + promises_.gpus(team, sku));
  }
  bool takes_back_of(const Ask& ask, int sku) { return takes_back_of(ask.team, *ask.shape, sku); }

  bool takes_back(int team, const Shape& shape) {
    if (!teams_[team].team.has_quota) return false;
    for (auto& each : pools_.capacity()) {
      if (takes_back_of(team, shape, each.first)) return true;
    }
    return false;
  }

  // Asks of one shape and priority are refused together, unless a team may reclaim quota, or lacks it. Returns this team, or -1.
  int team_that_matters(const Ask& ask) {
    if (!teams_[ask.team].team.has_quota) return -1;
    bool mine = by_priority_[ask.priority] != 0;
    for (auto& each : pools_.capacity()) {
      if ((mine && takes_back_of(ask, each.first)) || !missing(ask, each.first).empty()) return ask.team;
    }
    return -1;
  }

  // The cheapest victims of all pools. Pools come by the lower bound of their costs, until no bound is below the best cost.
  bool cheapest(const Ask& ask, const std::vector<int>& pools, double now, const Reservations& reservations, Best& best) {
    struct Bound {
      double least_s;
      Pool* pool;
      Candidates candidates;
      std::vector<Deficit> deficits;
    };
    std::vector<Bound> bounds;
    for (int index : pools) {
      Pool& pool = *pools_.all[index];
      std::vector<Deficit> deficits = missing(ask, pool.sku);
      Candidates candidates = this->candidates(ask, pool, now);
      if (!deficits.empty()) add_others(candidates, ask, pool, deficits, now);
      if (candidates.attempts.empty()) continue;
      Gpus workers = ask.shape->smallest(pool.sku), have = pool.free_gpus() + pool.stopping;
      double least_s = least_cost_s(candidates.attempts, 0, std::max<Gpus>(1, workers - have), now, overhead_s_);
      if (least_s < kInfinity) bounds.push_back({least_s, &pool, std::move(candidates), std::move(deficits)});
    }
    std::sort(bounds.begin(), bounds.end(), [](const Bound& one, const Bound& other) {
      return std::tie(one.least_s, *one.pool->member_name, *one.pool->sku_name) <
             std::tie(other.least_s, *other.pool->member_name, *other.pool->sku_name);
    });
    bool has_best = false;
    for (auto& bound : bounds) {
      if (has_best && bound.least_s >= best.victims.cost.lost_s) break;
      Takes claimed = claimed_in(*bound.pool, reservations, ask.shape->avoided(*bound.pool));
      Best found;
      found.pool = bound.pool;
      if (search_in(ask, bound.candidates, ask.shape->smallest(bound.pool->sku), now, claimed, bound.deficits, found) && !found.victims.attempts.empty() &&
          (!has_best || found.victims.cost < best.victims.cost)) {
        best = std::move(found);
        has_best = true;
      }
    }
    return has_best;
  }

  // The cheapest victims in one pool, for the largest size of pods with any victims.
  bool search_in(const Ask& ask, Candidates& candidates, Gpus workers, double now, const Takes& claimed, const std::vector<Deficit>& deficits,
                 Best& found) {
    ++searches_;
    Takes leaving;
    for (auto& each : endings(*found.pool)) {
      for (auto [id, gpus] : each.attempt->nodes) add_to(leaving, id, gpus);
    }
    std::vector<Gpus> sizes;
    ask.shape->sizes(workers, *found.pool, sizes);
    std::sort(candidates.attempts.begin(), candidates.attempts.end(), by_age);
    std::sort(candidates.taken_back.begin(), candidates.taken_back.end());
    for (Gpus size : sizes) {
      Search search{*found.pool, workers / size, size, now, claimed, leaving, candidates.borrowed, candidates.taken_back, deficits, overhead_s_,
                    {}, {}, 0, 1};
      search.prepare();
      if (CheapestVictims(search).find(candidates.attempts, found.victims)) {
        found.size = size;
        return true;
      }
    }
    return false;
  }

  // Adds candidates in other pools of the SKU that return quota which the ask lacks.
  void add_others(Candidates& here, const Ask& ask, const Pool& pool, const std::vector<Deficit>& deficits, double now) {
    auto is_over = [&](int team) {
      return std::any_of(deficits.begin(), deficits.end(), [&](const Deficit& deficit) { return deficit.has(team); });
    };
    for (auto& other : pools_.all) {
      if (other.get() == &pool || other->sku != pool.sku) continue;
      auto& teams = other->teams();
      if (std::none_of(teams.begin(), teams.end(), is_over)) continue;
      Candidates there = candidates(ask, *other, now);
      for (const Attempt* each : there.attempts) {
        if (is_over(each->team)) here.attempts.push_back(each);
      }
      here.taken_back.insert(here.taken_back.end(), there.taken_back.begin(), there.taken_back.end());
      for (auto [team, gpus] : there.borrowed) here.borrowed[team] = gpus;
    }
    std::sort(here.attempts.begin(), here.attempts.end(), by_age);
  }

  // Candidates in a pool: attempts of lower priority, and settled attempts of the ask's own (to reclaim, or for a starved gang).
  Candidates candidates(const Ask& ask, Pool& pool, double now) {
    Candidates found;
    found.attempts = of_priority(pool, ask.priority, lower_in_, [&](const Attempt& each) { return each.priority < ask.priority; }).attempts;
    leave_spared(found.attempts, ask, now);
    bool starved = has_starved(ask), takes_back = takes_back_of(ask, pool.sku);
    if (takes_back && !is_patient(ask.created)) {
      settles_ = std::min(settles_, ask.created + policy_.settled_s);
      takes_back = false;
    }
    if (!takes_back && !starved) return found;
    const Known& equal = of_priority(pool, ask.priority, equal_in_, [&](const Attempt& each) { return each.priority == ask.priority; });
    std::map<int, Gpus> borrowed;
    for (int team : equal.teams) {
      if (team == ask.team || !teams_.lends(ask.team, team)) continue;
      Gpus gpus = teams_.borrowed(team, pool.sku);
      if (gpus > 0) borrowed[team] = gpus;
    }
    Attempts settled;
    for (const Attempt* each : equal.attempts) {
      bool is_lent = borrowed.count(each->team) > 0;
      double at = kInfinity;
      if (takes_back && is_lent) at = settled_at(*each, spared_s(*each, ask));
      if (starved && has_saved(*each, now) && (each->team == ask.team || is_lent)) at = std::min(at, settled_at(*each, policy_.starves_settled_s));
      if (at <= now) {
        settled.push_back(each);
      } else {
        settles_ = std::min(settles_, at);
      }
    }
    if (settled.empty()) return found;
    for (const Attempt* each : settled) {
      found.attempts.push_back(each);
      if (each->team != ask.team) found.taken_back.push_back(each);
    }
    found.borrowed = std::move(borrowed);
    std::sort(found.attempts.begin(), found.attempts.end(), by_age);
    return found;
  }

  // Removes attempts of lower priority whose tasks were preempted before and that have not run for long enough since.
  void leave_spared(Attempts& lower, const Ask& ask, double now) {
    if (ask.priority == kUrgent) return;
    auto is_spared = [&](const Attempt* each) {
      double at = each->preempted ? settled_at(*each, policy_.spared_again_s) : -kInfinity;
      if (at <= now) return false;
      settles_ = std::min(settles_, at);
      return true;
    };
    lower.erase(std::remove_if(lower.begin(), lower.end(), is_spared), lower.end());
  }

  // The least running time of a borrowing attempt before an owner may reclaim its quota.
  double spared_s(const Attempt& attempt, const Ask& owner) const {
    return attempt.started >= owner.created ? std::min(policy_.settled_s, policy_.settled_late_s) : policy_.settled_s;
  }

  double settled_at(const Attempt& attempt, double settled_s) const {
    double doublings = static_cast<double>(std::min<long long>(attempt.preempted, 32));
    return attempt.started + std::min(policy_.longest_settled_s, settled_s * power(2.0, doublings));
  }

  // Whether an attempt has a checkpoint that is recent enough for a starved gang to preempt it.
  bool has_saved(const Attempt& attempt, double now) const {
    return attempt.saved > attempt.started && attempt.saved >= now - policy_.starves_unsaved_s;
  }

  // Preemptible attempts of a pool, youngest checkpoint first; remembered until the pool changes.
  template <class Is>
  const Known& of_priority(Pool& pool, int priority, std::map<std::pair<int, int>, Known>& memory, Is is) {
    Known& known = memory[{pool.index, priority}];
    if (known.version != pool.version) {
      known.version = pool.version;
      known.attempts.clear();
      known.teams.clear();
      for (const Attempt* each : pool.running) {
        if (!each->preemptible || each->stopping || !is(*each)) continue;
        known.attempts.push_back(each);
        known.teams.push_back(each->team);
      }
      std::sort(known.attempts.begin(), known.attempts.end(), by_age);
      std::sort(known.teams.begin(), known.teams.end());
      known.teams.erase(std::unique(known.teams.begin(), known.teams.end()), known.teams.end());
    }
    return known;
  }

  // GPUs that stopping attempts free, where these are enough: of the pool with the least to spare.
  bool by_those_who_go(const Ask& ask, const std::vector<int>& pools, double now, const Reservations& reservations, Reservation& kept) {
    struct Room {
      Gpus gpus;
      Pool* pool;
    };
    std::vector<Room> rooms;
    for (int index : pools) {
      Pool& pool = *pools_.all[index];
      auto taken = kept_.find(index);
      Gpus gpus = pool.free_gpus() + pool.stopping - (taken == kept_.end() ? 0 : taken->second);
      if (gpus >= ask.shape->smallest(pool.sku)) rooms.push_back({gpus, &pool});
    }
    std::sort(rooms.begin(), rooms.end(), [](const Room& one, const Room& other) {
      return std::tie(one.gpus, *one.pool->member_name, *one.pool->sku_name) <
             std::tie(other.gpus, *other.pool->member_name, *other.pool->sku_name);
    });
    std::vector<Gpus> sizes;
    for (auto& room : rooms) {
      Pool& pool = *room.pool;
      Gpus workers = ask.shape->smallest(pool.sku);
      if (!(pool.stopping || teams_.gets_back(ask.team, pool.sku)) || !missing(ask, pool.sku).empty()) continue;
      Takes claimed = claimed_in(pool, reservations, ask.shape->avoided(pool));
      std::vector<Ending> stopping = endings(pool), enough;
      for (auto& each : stopping) {
        if (each.attempt->gpus >= workers) enough.push_back(each);
      }
      std::sort(enough.begin(), enough.end(), [](const Ending& one, const Ending& other) {
        if (one.attempt->gpus != other.attempt->gpus) return one.attempt->gpus < other.attempt->gpus;
        return ending_before(one, other);
      });
      if (enough.size() > kTightest) enough.resize(kTightest);
      std::sort(stopping.begin(), stopping.end(), ending_before);
      ask.shape->sizes(workers, pool, sizes);
      Start start;
      for (size_t at = 0; at <= enough.size(); ++at) {
        std::vector<Ending> going = at < enough.size() ? std::vector<Ending>{enough[at]} : stopping;
        for (Gpus size : sizes) {
          if (start_in(pool, workers / size, size, now, claimed, &going, start)) {
            kept = reservation(ask.key, start);
            return true;
          }
        }
      }
    }
    return false;
  }
};

}  // namespace tuneyard
