// One scheduling cycle: asks by priority, then by rank, put back by the usage of their teams. As placement.py and cycle.py.
#pragma once

#include "preempting.hpp"

namespace tuneyard {

constexpr size_t kBackfillLook = 256;
constexpr double kLentWhenDue = 0.1;

struct Found {
  Pool* pool = nullptr;
  const Option* option = nullptr;
  std::vector<int> lacks_quota;
  bool is_held = false, better_later = false;
  double held_s = 0.0;
};

struct Placed {
  Pool* pool;
  Gpus workers, pods;
  double seconds;
  Takes nodes;
};

// Finds free nodes for an ask, within quota and beside reservations, and the best of them.
class Finder {
 public:
  Finder(const Policy& policy, Pools& pools, Teams& teams, Starts& starts, Promises& promises, const Reservations& reservations)
      : policy_(policy), pools_(pools), teams_(teams), starts_(starts), promises_(promises), reservations_(reservations) {}

  Found find(const Ask& ask, double now) {
    Found found;
    Shape& shape = *ask.shape;
    for (auto& option : shape.options) {
      if (!option.size) {
        if (option.pools.empty()) continue;
        found.pool = choose(ask, option, option.pools);
        found.option = &option;
        return found;
      }
      auto& room = pools_.room(option.size);
      ok_.clear();
      for (int pool : option.pools) {
        if (room[pool] >= option.pods) ok_.push_back(pool);
      }
      if (ok_.empty()) continue;
      if (!shape.avoid.empty()) {
        keep([&](Pool& pool) { return fits(pool, option, shape.avoided(pool)); });
      }
      within_quota(ask, option, now, found.lacks_quota);
      if (!reservations_.empty()) not_kept(ask, option, now, found);
      if (ok_.empty()) continue;
      if (option.workers != shape.first && is_better_later(ask, option, now)) {
        found.better_later = true;
        continue;
      }
      found.pool = choose(ask, option, ok_);
      found.option = &option;
      return found;
    }
    return found;
  }

  Placed place(const Ask& ask, const Found& found, double now) {
    Pool& pool = *found.pool;
    const Option& option = *found.option;
    double seconds = Shape::speed(ask.seconds, ask.first_world(), pool, option.workers);
    Placed placed{&pool, option.workers, option.pods, seconds, {}};
    if (option.size) placed.nodes = pool.pick(option.pods, option.size, untouchable(*ask.shape, pool, now + seconds));
    return placed;
  }

  // Whether an elastic gang would end sooner by waiting for its full size than by starting at its smallest. Such a gang preempts nothing.
  bool waits_for_more(const Ask& ask, double now) {
    if (ask.shape->worlds.size() == 1 || ask.shape->sku_numbers.empty()) return false;
    double soonest_s = kInfinity;
    for (int index : ask.shape->allowed) {
      const Pool& pool = *pools_.all[index];
      soonest_s = std::min(soonest_s, Shape::speed(ask.seconds, ask.first_world(), pool, ask.shape->smallest(pool.sku)));
    }
    return ends_sooner_later(ask, soonest_s, now);
  }

  // The pool and time of the earliest start of the first possible world, within the quota that its team has now.
  // `awaits_quota`: or that it is predicted to have at the start.
  bool earliest(const Ask& ask, double now, bool awaits_quota, Start& start) {
    Gpus first = ask.shape->first;
    std::vector<std::pair<int, double>> opened;
    std::map<int, double> opens;  // by SKU
    for (int index : ask.shape->allowed) {
      Pool& pool = *pools_.all[index];
      if (!pool.usable || !ask.shape->fits(pool, first)) continue;
      auto [known, is_new] = opens.try_emplace(pool.sku, now);
      double& at = known->second;
      if (is_new) {
        bool has = awaits_quota ? promises_.quota_start(ask.team, pool.sku, first, now, at) : teams_.may_take(ask.team, pool.sku) >= static_cast<double>(first);
        if (!has) at = kInfinity;
      }
      if (at < kInfinity) opened.emplace_back(index, at);
    }
    return starts_.earliest(ask, now, reservations_, opened, start);
  }

 private:
  const Policy& policy_;
  Pools& pools_;
  Teams& teams_;
  Starts& starts_;
  Promises& promises_;
  const Reservations& reservations_;
  std::vector<int> ok_;

  static bool fits(const Pool& pool, const Option& option, const Takes& without) { return pool.room(option.size, without) >= option.pods; }

  template <class Is>
  void keep(Is is) {
    ok_.erase(std::remove_if(ok_.begin(), ok_.end(), [&](int index) { return !is(*pools_.all[index]); }), ok_.end());
  }

  // GPUs by node that an attempt may not use if it ends at `ends`: reserved GPUs, and nodes that have failed the task.
  Takes untouchable(const Shape& shape, const Pool& pool, double ends) const {
    Takes found;
    if (!reservations_.empty()) found = withheld_in(pool, reservations_, ends);
    for (auto [id, gpus] : shape.avoided(pool)) {
      auto known = std::find_if(found.begin(), found.end(), [id = id](auto& each) { return each.first == id; });
      if (known == found.end()) {
        found.emplace_back(id, gpus);
      } else {
        known->second = gpus;
      }
    }
    return found;
  }

  void within_quota(const Ask& ask, const Option& option, double now, std::vector<int>& lacking) {
    const TeamFacts& team = teams_[ask.team].team;
    if (!team.has_quota && team.closed.empty()) return;
    for (auto& each : pools_.capacity()) {
      int sku = each.first;
      auto of_sku = std::find_if(ok_.begin(), ok_.end(), [&](int index) { return pools_.all[index]->sku == sku; });
      if (of_sku == ok_.end()) continue;
      bool lacks = teams_.may_take(ask.team, sku) < static_cast<double>(option.workers);
      if (!lacks && promises_.any()) {
        double seconds = Shape::speed(ask.seconds, ask.first_world(), *pools_.all[*of_sku], option.workers);
        lacks = !promises_.allows(ask.team, sku, option.workers, now + seconds);
      }
      if (!lacks) continue;
      lacking.push_back(sku);
      keep([&](Pool& pool) { return pool.sku != sku; });
    }
  }

  // Removes pools where the ask would use GPUs beyond the time from which they are reserved for other asks.
  void not_kept(const Ask& ask, const Option& option, double now, Found& found) {
    bool has_longest = false;
    double longest_s = 0.0;
    for (auto& each : reservations_) {
      auto at = std::find(ok_.begin(), ok_.end(), each.pool->index);
      if (at == ok_.end()) continue;
      double ends = now + Shape::speed(ask.seconds, ask.first_world(), *each.pool, option.workers);
      if (each.lent_until < ends && !fits(*each.pool, option, untouchable(*ask.shape, *each.pool, ends))) {
        ok_.erase(at);
        longest_s = std::max(has_longest ? longest_s : 0.0, each.lent_until - now);
        has_longest = true;
      }
    }
    if (has_longest) {
      found.held_s = std::max(found.is_held ? found.held_s : 0.0, longest_s);
      found.is_held = true;
    }
  }

  // Whether an elastic gang would end sooner by waiting for its full size than by starting now at a smaller one.
  bool is_better_later(const Ask& ask, const Option& option, double now) {
    double soonest_s = kInfinity;
    for (int index : ok_) {
      soonest_s = std::min(soonest_s, Shape::speed(ask.seconds, ask.first_world(), *pools_.all[index], option.workers));
    }
    return ends_sooner_later(ask, soonest_s, now);
  }

  bool ends_sooner_later(const Ask& ask, double soonest_s, double now) {
    if (!policy_.reservations || ask.owed) return false;
    Start later;
    if (!earliest(ask, now, false, later)) return false;
    return later.at + Shape::speed(ask.seconds, ask.first_world(), *later.pool, ask.shape->first) < now + soonest_s;
  }

  // The best of these pools; of equal pools the first by name.
  Pool* choose(const Ask& ask, const Option& option, const std::vector<int>& indices) {
    const Shape& shape = *ask.shape;
    Pool* best = nullptr;
    if (!policy_.scores && indices.size() > 1) {
      auto place_in = [](const std::vector<std::string>& names, const std::string& name) {
        return std::find(names.begin(), names.end(), name) - names.begin();
      };
      for (int index : indices) {
        Pool* pool = pools_.all[index].get();
        auto rank = [&](const Pool& of) {
          return std::make_tuple(place_in(shape.clusters, *of.member_name), *of.member_name, place_in(shape.skus, *of.sku_name), *of.sku_name);
        };
        if (!best || rank(*pool) < rank(*best)) best = pool;
      }
      return best;
    }
    if (indices.size() == 1) return pools_.all[indices[0]].get();
    const std::vector<Gpus>* room = option.size ? &pools_.room(option.size) : nullptr;
    const std::vector<Gpus>* whole = option.size ? &pools_.whole_room(option.size) : nullptr;
    bool has_distance = !ask.near.empty() || !shape.clusters.empty() || !shape.skus.empty();
    double least = 0.0;
    for (int index : indices) {
      Pool* pool = pools_.all[index].get();
      double seconds = Shape::speed(ask.seconds, ask.first_world(), *pool, option.workers);
      double score = seconds * (1 + policy_.seconds_per_price * pool->price * static_cast<double>(option.workers) / 3600);
      if (has_distance) {
        double far = !ask.near.empty() && !is_near(ask, *pool) ? policy_.far_s : 0.0;
        score += far + shape.back[index] * policy_.preference_s;
      }
      if (room) {
        double left = static_cast<double>((*room)[index] - option.pods) / static_cast<double>((*whole)[index]);
        bool tears = option.size >= static_cast<Gpus>(pool->counts.size()) || !pool->counts[option.size];
        score += 0.5 * (left + (tears ? 1.0 : 0.0)) * policy_.fragmentation_s;
      }
      if (!best || score < least ||
          (score == least && std::tie(*pool->member_name, *pool->sku_name) < std::tie(*best->member_name, *best->sku_name))) {
        best = pool;
        least = score;
      }
    }
    return best;
  }

  static bool is_near(const Ask& ask, const Pool& pool) {
    for (auto& uri : ask.near) {
      for (auto& prefix : pool.near) {
        if (uri.compare(0, prefix.size(), prefix) == 0) return true;
      }
    }
    return false;
  }
};

// Carries out the decisions of a cycle.
class Doing {
 public:
  virtual ~Doing() = default;
  virtual void start(Ask* ask, const Placed& placed) = 0;             // it leaves its queue, and holds its GPUs
  virtual void ask_to_go(const Attempt* victim, const Ask& ask, bool has_starved) = 0;  // it counts as stopping
  virtual void owe(Ask* ask) = 0;                                     // freed GPUs are owed to it: it comes first from now on
  virtual void never(Ask* ask) = 0;
};

class Cycles {
 public:
  Cycles(const Policy& policy, Pools& pools, Teams& teams, Lines& lines, Doing& doing)
      : preempting(policy, pools, teams, promises_), policy_(policy), pools_(pools), teams_(teams), lines_(lines), doing_(doing),
        starts_(pools), promises_(teams), finder_(policy, pools, teams, starts_, promises_, reservations) {}

  Reservations reservations;
  Preempting preempting;

  void run(double now) {
    ++number_;
    now_ = now;
    reserved_ = 0;
    owed_.clear();
    reservations.clear();
    promises_.begin();
    preempting.begin(now);
    clear();  // of lines that were emptied since the last cycle
    put_back_.clear();
    if (policy_.fairness_s != 0.0) {
      put_back_ = teams_.shares(pools_.capacity(), now);
      for (double& share : put_back_) share = policy_.fairness_s * std::min(share, 100.0);
    }
    judge();
    std::vector<int> priorities;
    for (auto& [priority, groups] : lines_.groups) priorities.push_back(priority);
    for (int priority : priorities) {
      auto found = lines_.groups.find(priority);
      if (found != lines_.groups.end() && decide(runs_of(found->second, priority))) break;
    }
    for (Ask* ask : owed_) doing_.owe(ask);
    clear();
  }

 private:
  // An ask at a place of its line.
  struct Head {
    double value;
    Line* line;
    size_t at;
    const Ask& ask() const { return *line->entries[at]; }
  };

  // Heads of one group. Most groups are finished after their first head, so the others are sorted only when they are needed.
  struct Run {
    Group* group;
    Shape* shape;
    int priority;
    bool is_rest;      // no free GPUs fit this shape: only the first of its asks may get a reservation
    bool nobody_may;   // preempt
    bool is_sorted;    // `heads` are a heap; else the first is at `first`
    size_t first;
    std::vector<Head> heads;
    const Head& head() const { return is_sorted ? heads.front() : heads[first]; }
  };

  const Policy& policy_;
  Pools& pools_;
  Teams& teams_;
  Lines& lines_;
  Doing& doing_;
  Starts starts_;
  Promises promises_;
  Finder finder_;
  std::vector<double> put_back_;
  std::vector<Ask*> owed_;
  std::vector<Line*> never_;
  long long number_ = 0, reserved_ = 0, judged_layout_ = -1, judged_rules_ = -1;
  double now_ = 0.0;

  static bool later(const Head& one, const Head& other) {
    if (one.value != other.value) return one.value > other.value;
    const Ask &mine = one.ask(), &theirs = other.ask();
    if (mine.created != theirs.created) return mine.created > theirs.created;
    return theirs.key < mine.key;
  }
  static bool later_run(const Run* one, const Run* other) { return later(one->head(), other->head()); }

  static void begin(Run& run) {
    run.is_sorted = false;
    run.first = 0;
    for (size_t at = 1; at < run.heads.size(); ++at) {
      if (later(run.heads[run.first], run.heads[at])) run.first = at;
    }
  }

  static Head pop(Run& run) {
    if (run.is_sorted) {
      std::pop_heap(run.heads.begin(), run.heads.end(), later);
    } else {
      std::swap(run.heads[run.first], run.heads.back());
    }
    Head head = run.heads.back();
    run.heads.pop_back();
    return head;
  }

  static void push(Run& run, const Head& head) {
    run.heads.push_back(head);
    if (run.is_sorted) std::push_heap(run.heads.begin(), run.heads.end(), later);
  }

  // Make a heap of the heads, where they are none yet.
  static void sort(Run& run) {
    if (run.is_sorted) return;
    std::make_heap(run.heads.begin(), run.heads.end(), later);
    run.is_sorted = true;
  }

  std::deque<Run> runs_of(std::unordered_map<Shape*, Group>& groups, int priority) {
    std::deque<Run> runs;
    for (auto& [shape, group] : groups) {
      shape->refresh(pools_);
      bool looks_at_all = policy_.strict || shape->has_room(pools_);
      bool nobody_may = preempting.nobody_may(group, priority);
      Run looks{&group, shape, priority, false, nobody_may, false, 0, {}}, rest{&group, shape, priority, true, nobody_may, false, 0, {}};
      if (looks_at_all) looks.heads.reserve(group.lines.size());
      bool has_any = false;
      for (Line* line : group.lines) {
        if (line->never) continue;
        has_any = true;
        if (looks_at_all || (!nobody_may && preempting.first_may(*line))) {
          looks.heads.push_back(first(line));
        } else if (may_reserve()) {
          rest.heads.push_back(first(line));
        }
      }
      if (!looks_at_all && has_any) shape->blocked_in = number_;
      for (Run* run : {&looks, &rest}) {
        if (run->heads.empty()) continue;
        begin(*run);
        runs.push_back(std::move(*run));
      }
    }
    return runs;
  }

  Head first(Line* line) { return {value_of(*line, line->rank, line->owed), line, 0}; }
  Head head(Line* line, size_t at) { return {value_of(*line, line->entries[at]->rank, line->entries[at]->owed), line, at}; }

  double value_of(const Line& line, double rank, bool owed) {
    if (owed) return rank;
    double put_back_s = line.team < static_cast<int>(put_back_.size()) ? put_back_[line.team] : 0.0;
    return rank + (put_back_s + (would_borrow(line) ? policy_.borrowing_s : 0.0));
  }

  // Whether the team of a line has no quota of its own left, on any SKU of the line.
  bool would_borrow(const Line& line) {
    if (policy_.borrowing_s == 0.0 || !teams_[line.team].team.has_quota) return false;
    for (int sku : line.shape->sku_numbers) {
      if (teams_.within_quota(line.team, sku, 1)) return false;
    }
    return true;
  }

  // Decide about the asks of one priority. True: no further asks may be considered.
  bool decide(std::deque<Run> runs) {
    std::vector<Run*> heap;
    for (Run& run : runs) heap.push_back(&run);
    std::make_heap(heap.begin(), heap.end(), later_run);
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end(), later_run);
      Run& run = *heap.back();
      heap.pop_back();
      if (run.is_rest) {
        Head head = pop(run);
        if (!may_reserve() || reserve(head.ask())) continue;  // asks behind it would get no reservation either
      } else if (is_done(run)) {
        continue;
      } else if (look(run)) {
        return true;
      }
      if (run.heads.empty() || is_done(run)) continue;
      sort(run);
      heap.push_back(&run);
      std::push_heap(heap.begin(), heap.end(), later_run);
    }
    return false;
  }

  // Whether no further ask of a run would be considered.
  bool is_done(const Run& run) const {
    if (may_reserve() || policy_.strict) return false;
    return run.is_rest || (run.shape->blocked_in == number_ && run.nobody_may);
  }

  // Consider the first head of a run. True: no further asks may be considered.
  bool look(Run& run) {
    Head head = pop(run);
    Line* line = head.line;
    if (run.shape->blocked_in == number_ && !may_reserve() && !preempting.may(head.ask())) return policy_.strict;
    long long following = look_at(head);
    if (policy_.strict && following < 0) return true;
    if (following >= 0 && following < static_cast<long long>(line->entries.size())) push(run, this->head(line, following));
    return false;
  }

  // Decide about one ask. Returns the place of the next ask of its line. -1: no further ask of the line can start.
  long long look_at(const Head& head) {
    Line& line = *head.line;
    size_t at = head.at;
    Ask* ask = line.entries[at];
    Shape& shape = *line.shape;
    if (shape.held_in == number_ && ask->seconds * shape.fastest > shape.held_s) return shorter(line, at + 1, shape.held_s);
    Found found;
    if (shape.blocked_in != number_) found = finder_.find(*ask, now_);
    if (found.pool) {
      Placed placed = finder_.place(*ask, found, now_);
      if (promises_.any()) {
        Gpus gpus = 0;
        for (auto& each : placed.nodes) gpus += each.second;
        promises_.take(ask->team, placed.pool->sku, gpus, now_ + placed.seconds);
      }
      doing_.start(ask, placed);
      return at;
    }
    if (!found.better_later && make_room(ask)) return at + 1;
    if (found.is_held) {
      if (found.lacks_quota.empty() && !found.better_later) {
        shape.held_in = number_;
        shape.held_s = found.held_s;
      }
      return shorter(line, at + 1, found.held_s);
    }
    if (!found.lacks_quota.empty()) {
      if (teams_[line.team].team.closed.empty() && !reserve(*ask)) {
        promises_.make_when_free(line.team, found.lacks_quota, shape.first, now_, is_due(*ask) ? kLentWhenDue : 1.0, pools_.skus);
      }
      return -1;
    }
    reserve(*ask);
    if (!found.better_later) shape.blocked_in = number_;
    return -1;
  }

  // Free GPUs for an ask, where it may preempt. True: GPUs become free for it.
  bool make_room(Ask* ask) {
    if (!preempting.may(*ask) || finder_.waits_for_more(*ask, now_)) return false;
    Making making = preempting.make_room(*ask, now_, reservations);
    bool has_starved = preempting.has_starved(*ask);
    for (const Attempt* victim : making.going) doing_.ask_to_go(victim, *ask, has_starved);
    if (!making.going.empty()) owed_.push_back(ask);
    if (making.is_kept) keep(*ask, making.kept, ask->shape->smallest(making.kept.pool->sku));
    return !making.going.empty() || making.is_kept;
  }

  void keep(const Ask& ask, const Reservation& kept, Gpus workers, double lent_until = kInfinity) {
    reservations.push_back(kept);
    promises_.make(ask.team, kept.pool->sku, workers, kept.until, now_, lent_until);
  }

  bool may_reserve() const { return reserved_ < policy_.reservations; }
  bool is_due(const Ask& ask) const { return policy_.order == Policy::Order::stretch && now_ >= ask.rank; }

  // Reserve GPUs and quota for one of the first waiting asks, at the earliest time at which it is predicted to have both.
  bool reserve(const Ask& ask) {
    if (!may_reserve() || !teams_[ask.team].team.closed.empty()) return false;
    Start start;
    if (!finder_.earliest(ask, now_, true, start)) return false;
    bool awaits_quota = start.at > start.latest(now_);
    if (awaits_quota && !preempting.may_reclaim(ask, start.pool->sku)) return false;  // it reserves quota alone
    ++reserved_;
    double lent_until = is_due(ask) ? drained_from(ask, start) : kInfinity;
    keep(ask, reservation(ask.key, start, awaits_quota ? kInfinity : lent_until), ask.shape->first, lent_until);
    return true;
  }

  // The time until which the reservation of a due ask is still lent.
  double drained_from(const Ask& ask, const Start& start) const {
    double stays = -kInfinity;
    for (const Attempt* each : start.after) {
      if (!preempting.may_ever_go(*each, ask, now_)) stays = std::max(stays, expected_end(each->ends, now_));
    }
    return stays > -kInfinity ? now_ + kLentWhenDue * (stays - now_) : -kInfinity;
  }

  // The place of the next ask of a line that may be backfilled within `longest_s`. -1: none.
  long long shorter(const Line& line, size_t at, double longest_s) const {
    double fastest = line.shape->fastest;
    if (line.seconds[0] * fastest > longest_s) return -1;
    for (size_t index = at; index < std::min(line.entries.size(), at + kBackfillLook); ++index) {
      if (line.entries[index]->seconds * fastest <= longest_s) return static_cast<long long>(index);
    }
    return -1;
  }

  // Refuse asks that could never run, once for each layout of members and rules of teams.
  void judge() {
    if (pools_.members.empty()) return;
    bool is_same = pools_.layout == judged_layout_ && teams_.version == judged_rules_;
    judged_layout_ = pools_.layout;
    judged_rules_ = teams_.version;
    if (!is_same) never_.clear();
    auto look = [&](Line* line) {
      if (line->gone) return;
      line->never = is_never(*line);
      if (line->never) never_.push_back(line);
    };
    if (is_same) {
      for (Line* line : lines_.fresh) look(line);
    } else {
      for (auto& [priority, groups] : lines_.groups) {
        for (auto& [shape, group] : groups) {
          for (Line* line : group.lines) look(line);
        }
      }
    }
    lines_.fresh.clear();
    for (Line* line : never_) {
      for (Ask* ask : line->entries) {
        if (ask->failed_layout == judged_layout_ && ask->failed_rules == judged_rules_) continue;
        ask->failed_layout = judged_layout_;
        ask->failed_rules = judged_rules_;
        doing_.never(ask);
      }
    }
  }

  // Remove empty lines.
  void clear() {
    auto is_gone = [](const Line* line) { return line->gone; };
    never_.erase(std::remove_if(never_.begin(), never_.end(), is_gone), never_.end());
    lines_.fresh.erase(std::remove_if(lines_.fresh.begin(), lines_.fresh.end(), is_gone), lines_.fresh.end());
    lines_.bury();
  }

  bool is_never(const Line& line) {
    line.shape->refresh(pools_);
    for (auto [sku, workers] : line.shape->least_by_sku) {
      if (teams_.most(line.team, sku) >= static_cast<double>(workers)) return false;
    }
    return true;
  }
};

}  // namespace tuneyard
