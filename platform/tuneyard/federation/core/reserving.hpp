// Earliest starts of gangs, and reservations of GPUs and quota for asks that start later. As reservations.py.
#pragma once

#include "shapes.hpp"

namespace tuneyard {

// An attempt with its assumed end.
struct Ending {
  const Attempt* attempt;
  double ends;
};

inline bool ending_before(const Ending& one, const Ending& other) {
  if (one.ends != other.ends) return one.ends < other.ends;
  return one.attempt->key < other.attempt->key;
}

struct Start {
  Pool* pool = nullptr;
  double at = 0.0;
  Takes takes;
  std::vector<const Attempt*> after;
  double first_end = 0.0, last_end = 0.0;

  double latest(double now) const {
    return after.empty() ? now : std::max(expected_end(first_end, now), expected_end(last_end, now));
  }
};

struct Reservation {
  Key key;
  Pool* pool;
  double until;
  Takes needs, withheld;
  double lent_until;
};

// GPUs by node during a computation. `reset` clears it, at the cost of the touched nodes.
class Sheet {
 public:
  Gpus& operator[](int node) {
    if (node >= static_cast<int>(of_.size())) {
      of_.resize(node + 1);
      is_set_.resize(node + 1);
    }
    if (!is_set_[node]) {
      is_set_[node] = true;
      touched.push_back(node);
    }
    return of_[node];
  }
  Gpus get(int node) const { return node < static_cast<int>(of_.size()) ? of_[node] : 0; }
  void reset() {
    for (int node : touched) of_[node] = 0, is_set_[node] = false;
    touched.clear();
  }
  std::vector<int> touched;

 private:
  std::vector<Gpus> of_;
  std::vector<char> is_set_;
};

inline void add_to(Takes& takes, int node, Gpus gpus) {
  for (auto& each : takes) {
    if (each.first == node) {
      each.second += gpus;
      return;
    }
  }
  takes.emplace_back(node, gpus);
}

// The earliest start of `pods` pods of `size` GPUs. False: the end of all of `ends` makes no room. `ends` null: all attempts of the pool.
inline bool start_in(Pool& pool, Gpus pods, Gpus size, double now, const Takes& claims, const std::vector<Ending>* ends, Start& start) {
  static thread_local Sheet less, gained;  // GPUs by node: taken from its free GPUs; freed by ended attempts
  less.reset();
  gained.reset();
  for (auto [id, gpus] : claims) {
    if (pool.nodes[id].there) less[id] -= gpus;
  }
  Gpus have = pool.room(size, claims);
  start.pool = &pool;
  start.after.clear();
  start.takes.clear();
  auto end = [&](const Attempt* attempt, double at) {
    bool useful = false;
    for (auto [id, gpus] : attempt->nodes) {
      const Node& node = pool.nodes[id];
      if (!node.there) continue;
      Gpus before = node.free + less.get(id);
      Gpus surplus = node.held - gained.get(id) - node.base;
      Gpus given = std::max<Gpus>(0, gpus - std::max<Gpus>(0, surplus));
      gained[id] += gpus;
      less[id] += given;
      have += std::max<Gpus>(0, before + given) / size - std::max<Gpus>(0, before) / size;
      useful = useful || given > 0;
    }
    if (useful) {
      if (start.after.empty()) start.first_end = at;
      start.last_end = at;
      start.after.push_back(attempt);
    }
  };
  if (have < pods) {
    if (ends) {
      for (auto& each : *ends) {
        end(each.attempt, each.ends);
        if (have >= pods) break;
      }
    } else {
      for (const Attempt* each : pool.running) {
        end(each, each->ends);
        if (have >= pods) break;
      }
    }
  }
  if (have < pods) return false;
  start.at = start.latest(now);
  // Nodes that are free now come first, so that few nodes wait idle for the rest of the gang.
  Gpus left = pods;
  auto take = [&](int id) {
    Gpus count = std::min(left, std::max<Gpus>(0, pool.nodes[id].free + less.get(id)) / size);
    if (count > 0) {
      start.takes.emplace_back(id, count * size);
      left -= count;
    }
    return left > 0;
  };
  for (int free = static_cast<int>(pool.by_free.size()) - 1; free >= 0 && left; --free) {
    pool.by_free[free].each([&](int rank) {
      int id = pool.by_name[rank];
      return gained.get(id) > 0 || take(id);
    });
  }
  if (left) {
    std::vector<int> later;
    for (int id : gained.touched) {
      if (gained.get(id) > 0 && pool.nodes[id].there) later.push_back(id);
    }
    std::sort(later.begin(), later.end(), [&](int one, int other) {
      if (pool.nodes[one].free != pool.nodes[other].free) return pool.nodes[one].free > pool.nodes[other].free;
      return pool.nodes[one].rank < pool.nodes[other].rank;
    });
    for (int id : later) {
      if (!take(id)) break;
    }
  }
  return true;
}

inline Reservation reservation(const Key& key, const Start& start, double lent_until = kInfinity) {
  static thread_local Sheet freed;
  freed.reset();
  for (const Attempt* attempt : start.after) {
    if (attempt->pool != start.pool->index) continue;
    for (auto [id, gpus] : attempt->nodes) freed[id] += gpus;
  }
  Reservation found{key, start.pool, start.at, start.takes, {}, std::min(start.at, lent_until)};
  for (auto [id, gpus] : start.takes) {
    const Node& node = start.pool->nodes[id];
    if (gpus > freed.get(id) && node.free > 0) found.withheld.emplace_back(id, std::min(node.free, gpus - freed.get(id)));
  }
  return found;
}

using Reservations = std::vector<Reservation>;

// Free GPUs by node that an attempt may not use if it ends after `until`.
inline Takes withheld_in(const Pool& pool, const Reservations& reservations, double until) {
  Takes found;
  for (auto& each : reservations) {
    if (each.pool == &pool && each.lent_until < until) {
      for (auto [id, gpus] : each.withheld) add_to(found, id, gpus);
    }
  }
  return found;
}

// GPUs by node of a pool that are reserved or avoided.
inline Takes claimed_in(const Pool& pool, const Reservations& reservations, Takes avoided) {
  for (auto& each : reservations) {
    if (each.pool == &pool) {
      for (auto [id, gpus] : each.needs) add_to(avoided, id, gpus);
    }
  }
  return avoided;
}

// Earliest starts by pool, remembered until the pool changes.
class Starts {
 public:
  explicit Starts(Pools& pools) : pools_(pools) {}

  // The start of the first possible world that is predicted to end first, over these pools. False: there is none.
  // With each pool comes the time from which the team has quota for it.
  bool earliest(const Ask& ask, double now, const Reservations& reservations, const std::vector<std::pair<int, double>>& pools, Start& chosen) {
    bool has_best = false;
    double best = 0.0;
    const Pool* of = nullptr;
    std::vector<Gpus> sizes;
    Start start;
    Gpus workers = ask.shape->first;
    for (auto [index, opens] : pools) {
      Pool& pool = *pools_.all[index];
      ask.shape->sizes(workers, pool, sizes);
      for (Gpus size : sizes) {
        if (!start_in(*ask.shape, pool, workers / size, size, now, reservations, start)) continue;
        start.at = std::max(start.at, opens);
        double ends = start.at + Shape::speed(ask.seconds, ask.first_world(), pool, workers);
        if (!has_best || std::tie(ends, *pool.member_name, *pool.sku_name) < std::tie(best, *of->member_name, *of->sku_name)) {
          has_best = true;
          best = ends;
          of = &pool;
          chosen = start;
        }
        break;
      }
    }
    return has_best;
  }

 private:
  struct Known {
    long long version = -1;
    bool is_there = false;
    Start start;
  };
  Pools& pools_;
  std::map<std::tuple<int, Gpus, Gpus>, Known> known_;

  bool start_in(const Shape& shape, Pool& pool, Gpus pods, Gpus size, double now, const Reservations& reservations, Start& start) {
    Takes claimed = claimed_in(pool, reservations, shape.avoided(pool));
    if (!claimed.empty()) return tuneyard::start_in(pool, pods, size, now, claimed, nullptr, start);
    Known& known = known_[{pool.index, pods, size}];
    if (known.version != pool.version) {
      known.version = pool.version;
      known.is_there = tuneyard::start_in(pool, pods, size, now, {}, nullptr, known.start);
    }
    if (!known.is_there) return false;
    start = known.start;
    start.at = start.latest(now);
    return true;
  }
};

// Quota reserved in one cycle.
class Promises {
 public:
  explicit Promises(Teams& teams) : teams_(teams) {}

  void begin() {
    by_limit_.clear();
    of_team_.clear();
  }

  bool any() const { return !by_limit_.empty(); }

  // Whether quota is reserved for asks of a team.
  bool has_of(int team) const {
    return std::any_of(of_team_.begin(), of_team_.end(), [&](auto& each) { return each.first.first == team; });
  }

  Gpus gpus(int team, int sku) const {
    auto found = of_team_.find({team, sku});
    return found == of_team_.end() ? 0 : found->second;
  }

  // Quota is lent until `lent_until` at most.
  void make(int team, int sku, Gpus gpus, double until, double now, double lent_until = kInfinity) {
    of_team_[{team, sku}] += gpus;
    for (auto& limit : teams_.limits(team)) {
      double spare = teams_.left(limit, sku) + static_cast<double>(teams_.gives_back(limit, sku, until, now)) - static_cast<double>(gpus);
      by_limit_[{limit, sku}].push_back({gpus, std::min(until, lent_until), std::max(0.0, spare)});
    }
  }

  // When a team is predicted to have quota for `gpus` more GPUs beside all reserved quota. False: at no known time.
  bool quota_start(int team, int sku, Gpus gpus, double now, double& start) {
    start = now;
    for (auto& limit : teams_.limits(team)) {
      Gpus reserved = 0;
      auto found = by_limit_.find({limit, sku});
      if (found != by_limit_.end()) {
        for (auto& each : found->second) reserved += each.gpus;
      }
      double at;
      if (!teams_.limit_start(limit, sku, gpus + reserved, now, at)) return false;
      start = std::max(start, at);
    }
    return true;
  }

  // Reserve quota for an ask that lacks it, of the SKU that has it first, and lend it for a share `lent` of the time until then.
  // A limit is reserved for one such ask in a cycle.
  void make_when_free(int team, const std::vector<int>& skus, Gpus gpus, double now, double lent, const Names& names) {
    bool has_any = false;
    double best = 0.0;
    int of = -1;
    for (int sku : skus) {
      double start;
      if (!quota_start(team, sku, gpus, now, start)) continue;
      if (!has_any || std::tie(start, names[sku]) < std::tie(best, names[of])) {
        has_any = true;
        best = start;
        of = sku;
      }
    }
    if (!has_any) return;
    for (auto& limit : teams_.limits(team)) {
      if (by_limit_.count({limit, of})) return;
    }
    make(team, of, gpus, best, now, lent < 1 ? now + lent * (best - now) : kInfinity);
  }

  bool allows(int team, int sku, Gpus gpus, double ends) {
    for (auto& limit : teams_.limits(team)) {
      auto found = by_limit_.find({limit, sku});
      if (found == by_limit_.end()) continue;
      for (auto& each : found->second) {
        if (each.until < ends && each.spare < gpus) return false;
      }
    }
    return true;
  }

  void take(int team, int sku, Gpus gpus, double ends) {
    for (auto& limit : teams_.limits(team)) {
      auto found = by_limit_.find({limit, sku});
      if (found == by_limit_.end()) continue;
      for (auto& each : found->second) {
        if (each.until < ends) each.spare -= static_cast<double>(gpus);
      }
    }
  }

 private:
  struct Promise {
    Gpus gpus;
    double until, spare;
  };
  Teams& teams_;
  std::map<std::pair<Limit, int>, std::vector<Promise>> by_limit_;
  std::map<std::pair<int, int>, Gpus> of_team_;
};

}  // namespace tuneyard
