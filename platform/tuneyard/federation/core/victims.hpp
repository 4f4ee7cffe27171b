// Victims: the legal set of attempts that makes room for a gang and loses the least GPU-time. As victims.py, step by step.
#pragma once

#include "reserving.hpp"

namespace tuneyard {

constexpr int kSteps = 4000;
constexpr size_t kMost = 24;

struct Cost {
  double lost_s = 0.0;
  Gpus gpus = 0;
  long long count = 0;
  bool operator<(const Cost& other) const { return std::tie(lost_s, gpus, count) < std::tie(other.lost_s, other.gpus, other.count); }
  bool operator>=(const Cost& other) const { return !(*this < other); }
};

using Attempts = std::vector<const Attempt*>;

// Youngest checkpoint first; attempts of tasks that were preempted before count as older.
inline bool by_age(const Attempt* one, const Attempt* other) {
  double mine = one->counted_saved(), theirs = other->counted_saved();
  if (mine != theirs) return mine > theirs;
  if (one->gpus != other->gpus) return one->gpus < other->gpus;
  return one->key < other->key;
}

inline double lost_s(const Attempt& attempt, double now, double overhead_s) {
  double gpus = static_cast<double>(attempt.gpus);
  return gpus * std::max(0.0, now - attempt.counted_saved()) + gpus * overhead_s;
}

// A lower bound of the GPU-seconds lost by any victims that free `missing` GPUs: the fractional knapsack.
inline double least_cost_s(const Attempts& attempts, size_t from, Gpus missing, double now, double overhead_s) {
  double cost = 0.0;
  for (size_t at = from; at < attempts.size(); ++at) {
    if (missing <= 0) return cost;
    const Attempt& attempt = *attempts[at];
    if (attempt.gpus) {
      double share = static_cast<double>(missing) / static_cast<double>(attempt.gpus);
      cost += lost_s(attempt, now, overhead_s) * std::min(1.0, share);
    }
    missing -= attempt.gpus;
  }
  return missing <= 0 ? cost : kInfinity;
}

struct Search {
  Pool& pool;
  Gpus pods, size;
  double now;
  const Takes& claimed;
  const Takes& leaving;
  const std::map<int, Gpus>& borrowed;  // by team
  const std::vector<const Attempt*>& taken_back;  // sorted by address
  const std::vector<Deficit>& deficits;
  double overhead_s;

  std::vector<Gpus> reserve;  // by node: claimed GPUs
  std::vector<Gpus> held;     // by node: held GPUs, without those of stopping attempts
  Gpus room_now = 0, missing = 1;

  void prepare() {
    reserve.assign(pool.nodes.size(), 0);
    held.assign(pool.nodes.size(), 0);
    for (int id : pool.by_name) held[id] = pool.nodes[id].held;
    for (auto [id, gpus] : claimed) reserve[id] += gpus;
    for (auto [id, gpus] : leaving) held[id] -= gpus;
    Gpus most = 0;
    for (int id : pool.by_name) {
      Gpus now_free = free(id, 0);
      room_now += now_free / size;
      most += std::min(now_free, pool.nodes[id].base / size * size);
    }
    missing = std::max<Gpus>(1, pods * size - most);
    for (auto& deficit : deficits) missing = std::max(missing, deficit.gpus);
  }

  Gpus free(int id, Gpus freed) const {
    return std::max<Gpus>(0, pool.nodes[id].base - std::max<Gpus>(0, held[id] - freed) - reserve[id]);
  }

  double lost_s(const Attempt& attempt) const { return tuneyard::lost_s(attempt, now, overhead_s); }

  bool is_taken_back(const Attempt* attempt) const { return std::binary_search(taken_back.begin(), taken_back.end(), attempt); }

  Cost cost_of(const Attempts& attempts) const {
    Cost cost;
    for (const Attempt* each : attempts) {
      cost.lost_s += lost_s(*each);
      cost.gpus += each->gpus;
      ++cost.count;
    }
    return cost;
  }
};

struct Victims {
  Attempts attempts;
  Cost cost;
};

// A set of victims, its room and its legality.
class Going {
 public:
  explicit Going(Search& search) : search_(search), freed_(search.pool.nodes.size(), 0), of_deficit_(search.deficits.size(), 0) {
    room_ = search.room_now;
  }

  const Attempts& attempts() const { return attempts_; }
  bool has(const Attempt* attempt) const { return std::find(attempts_.begin(), attempts_.end(), attempt) != attempts_.end(); }

  void add(const Attempt* attempt) {
    attempts_.push_back(attempt);
    count(attempt, 1);
    if (search_.is_taken_back(attempt)) {
      auto& back = back_of(attempt->team);
      back.insert(std::lower_bound(back.begin(), back.end(), attempt->gpus), attempt->gpus);
    }
  }

  void drop(const Attempt* attempt) {
    if (attempts_.back() == attempt) {
      attempts_.pop_back();
    } else {
      attempts_.erase(std::find(attempts_.begin(), attempts_.end(), attempt));
    }
    count(attempt, -1);
    if (search_.is_taken_back(attempt)) {
      auto& back = back_of(attempt->team);
      back.erase(std::lower_bound(back.begin(), back.end(), attempt->gpus));
    }
  }

  bool makes_room() const {
    if (room_ < search_.pods) return false;
    for (size_t at = 0; at < of_deficit_.size(); ++at) {
      if (of_deficit_[at] < search_.deficits[at].gpus) return false;
    }
    return true;
  }

  // Whether no team returns more than it borrows, except by the last of its victims.
  bool is_legal() const {
    for (auto& team : teams_) {
      if (team.back.empty()) continue;
      auto borrowed = search_.borrowed.find(team.number);
      if (team.gpus - team.back.back() >= (borrowed == search_.borrowed.end() ? 0 : borrowed->second)) return false;
    }
    return true;
  }

 private:
  struct OfTeam {
    int number;
    Gpus gpus;
    std::vector<Gpus> back;
  };
  Search& search_;
  Attempts attempts_;
  std::vector<Gpus> freed_, of_deficit_;
  std::vector<OfTeam> teams_;
  Gpus room_ = 0;

  OfTeam& team(int number) {
    for (auto& each : teams_) {
      if (each.number == number) return each;
    }
    teams_.push_back({number, 0, {}});
    return teams_.back();
  }
  std::vector<Gpus>& back_of(int number) { return team(number).back; }

  void count(const Attempt* attempt, int sign) {
    team(attempt->team).gpus += sign * attempt->gpus;
    for (size_t at = 0; at < of_deficit_.size(); ++at) {
      if (search_.deficits[at].has(attempt->team)) of_deficit_[at] += sign * attempt->gpus;
    }
    if (attempt->pool != search_.pool.index) return;
    for (auto [id, gpus] : attempt->nodes) {
      if (!search_.pool.nodes[id].there) continue;
      Gpus before = freed_[id], after = freed_[id] = before + sign * gpus;
      room_ += search_.free(id, after) / search_.size - search_.free(id, before) / search_.size;
    }
  }
};

class CheapestVictims {
 public:
  explicit CheapestVictims(Search& search) : search_(search) {}

  // `candidates`: youngest checkpoint first. False where no set makes room.
  bool find(Attempts candidates, Victims& best) {
    Going all(search_);
    for (const Attempt* each : candidates) all.add(each);
    if (!all.makes_room()) return false;
    bool has_best = greedy(candidates, best);
    if (candidates.size() > kMost) narrow(candidates, has_best ? best.attempts : Attempts());
    candidates_ = std::move(candidates);
    has_bound_ = has_best;
    bound_ = best.cost;
    left_ = kSteps;
    largest_ = 1;
    for (const Attempt* each : candidates_) largest_ = std::max(largest_, each->gpus);
    Going chosen(search_), possible(search_);
    for (const Attempt* each : candidates_) possible.add(each);
    chosen_ = &chosen;
    possible_ = &possible;
    best_ = &best;
    found_ = false;
    branch(0, Cost());
    return found_ || has_best;
  }

 private:
  Search& search_;
  Attempts candidates_;
  bool has_bound_ = false, found_ = false;
  Cost bound_;
  Victims* best_ = nullptr;
  int left_ = 0;
  Gpus largest_ = 1;
  Going *chosen_ = nullptr, *possible_ = nullptr;

  bool greedy(const Attempts& candidates, Victims& best) {
    bool has_best = false;
    for (bool by_node : {false, true}) {
      Going going(search_);
      if (by_node) {
        node_by_node(going, candidates);
      } else {
        cheapest_first(going, candidates);
      }
      if (!going.makes_room()) continue;
      drop_needless(going);
      Victims found{going.attempts(), search_.cost_of(going.attempts())};
      if (!has_best || found.cost < best.cost) best = std::move(found);
      has_best = true;
    }
    return has_best;
  }

  void cheapest_first(Going& going, const Attempts& candidates) {
    for (const Attempt* each : candidates) {
      if (going.makes_room()) break;
      going.add(each);
      if (!going.is_legal()) going.drop(each);
    }
  }

  // Clear the cheapest nodes, each for one pod.
  void node_by_node(Going& going, const Attempts& candidates) {
    Pool& pool = search_.pool;
    std::vector<std::vector<std::pair<const Attempt*, Gpus>>> on_node(pool.nodes.size());
    for (const Attempt* each : candidates) {
      if (each->pool != pool.index) continue;
      for (auto [id, gpus] : each->nodes) on_node[id].emplace_back(each, gpus);
    }
    struct Price {
      Cost cost;
      int rank;
      Attempts cleared;
    };
    std::vector<Price> prices;
    for (int id : pool.by_name) {
      if (on_node[id].empty()) continue;
      Attempts cleared;
      Gpus freed = 0;
      for (auto [attempt, gpus] : on_node[id]) {
        if (search_.free(id, freed) >= search_.size) break;
        cleared.push_back(attempt);
        freed += gpus;
      }
      if (search_.free(id, freed) >= search_.size) prices.push_back({search_.cost_of(cleared), pool.nodes[id].rank, std::move(cleared)});
    }
    std::sort(prices.begin(), prices.end(), [](const Price& one, const Price& other) {
      if (one.cost < other.cost) return true;
      if (other.cost < one.cost) return false;
      return one.rank < other.rank;
    });
    for (auto& price : prices) {
      if (going.makes_room()) break;
      Attempts added;
      for (const Attempt* each : price.cleared) {
        if (!going.has(each)) added.push_back(each);
      }
      for (const Attempt* each : added) going.add(each);
      if (!going.is_legal()) {
        for (const Attempt* each : added) going.drop(each);
      }
    }
  }

  void drop_needless(Going& going) {
    Attempts order = going.attempts();
    std::sort(order.begin(), order.end(), [&](const Attempt* one, const Attempt* other) {
      double mine = search_.lost_s(*one), theirs = search_.lost_s(*other);
      if (mine != theirs) return mine > theirs;
      if (one->gpus != other->gpus) return one->gpus > other->gpus;
      return one->key < other->key;
    });
    for (const Attempt* each : order) {
      going.drop(each);
      if (!going.makes_room()) going.add(each);
    }
  }

  // Keeps the candidates of the greedy answer, and the cheapest others.
  static void narrow(Attempts& candidates, const Attempts& needed) {
    auto is_needed = [&](const Attempt* each) { return std::find(needed.begin(), needed.end(), each) != needed.end(); };
    size_t others = kMost > needed.size() ? kMost - needed.size() : 0;
    Attempts kept;
    for (const Attempt* each : candidates) {
      if (kept.size() >= 4 * kMost) break;
      if (is_needed(each)) {
        kept.push_back(each);
      } else if (others) {
        kept.push_back(each);
        --others;
      }
    }
    candidates = std::move(kept);
  }

  void branch(size_t at, Cost cost) {
    if (--left_ < 0 || (has_bound_ && cost >= bound_) || !chosen_->is_legal()) return;
    if (chosen_->makes_room()) {
      best_->attempts = chosen_->attempts();
      best_->cost = bound_ = cost;
      has_bound_ = found_ = true;
      return;
    }
    if (at == candidates_.size() || !possible_->makes_room() || cannot_beat(at, cost)) return;
    const Attempt* attempt = candidates_[at];
    chosen_->add(attempt);
    branch(at + 1, {cost.lost_s + search_.lost_s(*attempt), cost.gpus + attempt->gpus, cost.count + 1});
    chosen_->drop(attempt);
    possible_->drop(attempt);
    branch(at + 1, cost);
    possible_->add(attempt);
  }

  bool cannot_beat(size_t at, const Cost& cost) const {
    if (!has_bound_) return false;
    Gpus missing = std::max<Gpus>(1, search_.missing - cost.gpus);
    double least = cost.lost_s + least_cost_s(candidates_, at, missing, search_.now, search_.overhead_s);
    long long more = static_cast<long long>(std::ceil(static_cast<double>(missing) / static_cast<double>(largest_)));
    return Cost{least, cost.gpus + missing, cost.count + more} >= bound_;
  }
};

}  // namespace tuneyard
