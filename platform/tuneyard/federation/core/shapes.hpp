// Shapes: constraints that asks share, with the pools and sizes of pods that fit them, and the queues of asks. As queues.py.
#pragma once

#include "teams.hpp"

namespace tuneyard {

// Sizes of equal pods into which `workers` divide, largest first.
inline void pod_sizes(Gpus workers, Gpus gpus_per_node, bool cpu, Gpus unit, std::vector<Gpus>& found) {
  found.clear();
  if (cpu) {
    if (workers % unit == 0 && unit <= gpus_per_node) found.push_back(unit);
    return;
  }
  for (Gpus size = std::min(workers, gpus_per_node); size > 0; --size) {
    if (workers % size == 0 && size % unit == 0) found.push_back(size);
  }
}

constexpr Gpus kFitsNever = (1ll << 31) - 1;

struct Option {
  Gpus workers, pods, size;
  std::vector<int> pools;
};

struct Shape {
  // The key.
  std::vector<Gpus> worlds;
  Gpus unit = 1;
  std::vector<std::string> skus, clusters;
  std::vector<std::pair<std::string, std::string>> avoid;
  std::vector<std::pair<std::string, Gpus>> least;
  long long serial = 0;
  int uses = 0;  // groups

  // Numbers of cycles.
  long long blocked_in = -1, held_in = -1;
  double held_s = 0.0;

  // How the shape fits one layout.
  std::vector<Option> options;
  std::vector<int> allowed, sku_numbers;
  std::vector<std::pair<int, Gpus>> least_by_sku;
  std::vector<double> back;  // by pool: its place in the ask's own lists
  double fastest = 1.0;
  Gpus first = 0;  // the best world that some empty pool could run
  bool only_on_failed = false;

  Takes avoided(const Pool& pool) const {
    Takes found;
    if (avoid.empty() || only_on_failed) return found;
    for (auto& [member, node] : avoid) {
      if (member != *pool.member_name) continue;
      auto id = pool.id_of.find(node);
      if (id != pool.id_of.end() && pool.nodes[id->second].there) found.emplace_back(id->second, pool.nodes[id->second].base);
    }
    return found;
  }

  void sizes(Gpus workers, const Pool& pool, std::vector<Gpus>& found) const {
    pod_sizes(workers, pool.gpus_per_node, pool.is_cpu, unit, found);
  }

  // Whether the model fits on a number of GPUs of a pool, as far as that is known.
  bool fits(const Pool& pool, Gpus workers) const { return workers >= fewest(*pool.sku_name); }

  // The smallest world that may start on a SKU. Where none may: the smallest of all worlds.
  Gpus smallest(int sku) const { return smallest_[sku]; }

  bool has_room(Pools& pools) const {
    for (const Option* option : least_) {
      if (!option->size) return true;
      auto& room = pools.room(option->size);
      for (int pool : option->pools) {
        if (room[pool] >= option->pods) return true;
      }
    }
    return false;
  }

  void refresh(Pools& pools) {
    if (layout_ == pools.layout) return;
    layout_ = pools.layout;
    allowed.clear();
    sku_numbers.clear();
    back.clear();
    smallest_.clear();
    Gpus largest = *std::max_element(worlds.begin(), worlds.end());
    for (int sku = 0; sku < pools.skus.size(); ++sku) smallest_.push_back(smallest_on(pools.skus[sku]));
    for (auto& pool : pools.all) {
      back.push_back(static_cast<double>(place_in(clusters, *pool->member_name) + place_in(skus, *pool->sku_name)));
      if (!lets_in(*pool) || !fits(*pool, largest)) continue;
      allowed.push_back(pool->index);
      if (std::find(sku_numbers.begin(), sku_numbers.end(), pool->sku) == sku_numbers.end()) sku_numbers.push_back(pool->sku);
    }
    fastest = kInfinity;
    for (int pool : allowed) fastest = std::min(fastest, speed(1.0, worlds[0], *pools.all[pool], worlds[0]));
    if (allowed.empty()) fastest = 1.0;
    list(pools);
    list_least();
    least_by_sku.clear();
    bool do_elsewhere = false;
    size_t best = worlds.size();
    for (int index : allowed) {
      const Pool& pool = *pools.all[index];
      for (size_t at = 0; at < worlds.size(); ++at) {
        if (would_do(pool, worlds[at], false)) {
          keep_least(pool.sku, worlds[at]);
          best = std::min(best, at);
        }
        if (!avoid.empty() && would_do(pool, worlds[at], true)) do_elsewhere = true;
      }
    }
    first = worlds[best < worlds.size() ? best : 0];
    only_on_failed = !avoid.empty() && !do_elsewhere;
  }

  // Predicted seconds with `workers` workers in a pool: `by_roofline` of policy.py.
  static double speed(double seconds, Gpus first_world, const Pool& pool, Gpus workers) {
    return seconds * (workers ? static_cast<double>(first_world) / static_cast<double>(workers) : 1.0) / pool.speed_factor;
  }

 private:
  long long layout_ = -1;
  std::vector<const Option*> least_;
  std::vector<Gpus> smallest_;  // by SKU

  Gpus fewest(const std::string& sku) const {
    if (least.empty()) return 0;
    for (auto& [name, gpus] : least) {
      if (name == sku) return gpus;
    }
    return kFitsNever;
  }

  Gpus smallest_on(const std::string& sku) const {
    Gpus fewest = this->fewest(sku), found = -1;
    for (Gpus workers : worlds) {
      if (workers >= fewest && (found < 0 || workers < found)) found = workers;
    }
    return found < 0 ? *std::min_element(worlds.begin(), worlds.end()) : found;
  }

  // For each SKU, the smallest world in the smallest pods.
  void list_least() {
    least_.clear();
    std::vector<Gpus> done;
    for (int sku : sku_numbers) {
      Gpus workers = smallest_[sku], size = -1;
      if (std::find(done.begin(), done.end(), workers) != done.end()) continue;
      done.push_back(workers);
      for (auto& option : options) {
        if (option.workers == workers && (size < 0 || option.size < size)) size = option.size;
      }
      for (auto& option : options) {
        if (option.workers == workers && option.size == size) least_.push_back(&option);
      }
    }
  }

  static size_t place_in(const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) - names.begin();
  }

  bool lets_in(const Pool& pool) const {
    auto has = [](const std::vector<std::string>& names, const std::string& name) {
      return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
    };
    return pool.present && has(skus, *pool.sku_name) && has(clusters, *pool.member_name);
  }

  void list(Pools& pools) {
    options.clear();
    std::vector<Gpus> found;
    for (Gpus workers : worlds) {
      std::map<Gpus, std::vector<int>, std::greater<Gpus>> by_size;
      for (int index : allowed) {
        const Pool& pool = *pools.all[index];
        if (!pool.usable || !fits(pool, workers)) continue;
        if (workers) {
          sizes(workers, pool, found);
        } else {
          found.assign(1, 0);
        }
        for (Gpus size : found) by_size[size].push_back(index);
      }
      for (auto& [size, of] : by_size) options.push_back({workers, size ? workers / size : 0, size, of});
    }
  }

  void keep_least(int sku, Gpus workers) {
    for (auto& [known, least] : least_by_sku) {
      if (known == sku) {
        least = std::min(least, workers);
        return;
      }
    }
    least_by_sku.emplace_back(sku, workers);
  }

  bool would_do(const Pool& pool, Gpus workers, bool without_failed) const {
    if (!fits(pool, workers)) return false;
    if (!pool.usable) return !(without_failed && !avoid.empty());
    if (!workers) return true;
    std::vector<Gpus> found;
    sizes(workers, pool, found);
    for (Gpus size : found) {
      Gpus room = 0;
      for (int id : pool.by_name) {
        const Node& node = pool.nodes[id];
        if (!(without_failed && is_avoided(*pool.member_name, node.name))) room += node.total / size * size;
      }
      if (room >= workers) return true;
    }
    return false;
  }

  bool is_avoided(const std::string& member, const std::string& node) const {
    return std::find(avoid.begin(), avoid.end(), std::make_pair(member, node)) != avoid.end();
  }
};

inline Gpus Ask::first_world() const { return shape->worlds.front(); }
inline Gpus Ask::last_world() const { return shape->worlds.back(); }

// Asks of one priority, one team and one shape, by rank.
struct Line {
  Shape* shape;
  int team;
  int priority;
  std::vector<Ask*> entries;
  std::vector<double> seconds;
  size_t place = 0;  // in its group
  // Of its first ask, so that loops over all lines need not read asks.
  double rank = 0, created = 0, first_s = 0;
  bool owed = false;
  bool never = false;
  bool gone = false;  // empty, and kept until the cycle is over

  static bool before(const Ask* one, const Ask* other) { return comes_before(one->rank, *one, other->rank, *other); }

  void add(Ask* ask) {
    entries.insert(std::lower_bound(entries.begin(), entries.end(), ask, before), ask);
    seconds.insert(std::lower_bound(seconds.begin(), seconds.end(), ask->seconds), ask->seconds);
    look();
  }

  void remove(Ask* ask) {
    entries.erase(std::lower_bound(entries.begin(), entries.end(), ask, before));
    seconds.erase(std::lower_bound(seconds.begin(), seconds.end(), ask->seconds));
    if (!entries.empty()) look();
  }

 private:
  void look() {
    const Ask& first = *entries.front();
    rank = first.rank;
    created = first.created;
    first_s = first.seconds;
    owed = first.owed;
  }
};

// Lines of one priority and one shape.
struct Group {
  Shape* shape;
  std::vector<Line*> lines;
  std::unordered_map<int, std::unique_ptr<Line>> by_team;
};

constexpr double kOwedFirstS = 1e11;

class Lines {
 public:
  explicit Lines(const Policy& policy) : policy_(policy) {}

  std::map<int, std::unordered_map<Shape*, Group>, std::greater<int>> groups;  // by priority, highest first
  std::vector<Line*> fresh;  // lines made since the last reader emptied this

  void add(Ask* ask) {
    ask->rank = rank(*ask);
    Group& group = groups[ask->priority][ask->shape];
    if (!group.shape) {
      group.shape = ask->shape;
      ++ask->shape->uses;
    }
    auto& line = group.by_team[ask->team];
    if (!line) {
      line = std::make_unique<Line>(Line{ask->shape, ask->team, ask->priority, {}, {}});
      line->place = group.lines.size();
      group.lines.push_back(line.get());
      fresh.push_back(line.get());
    }
    ask->line = line.get();
    line->add(ask);
  }

  // Removes an ask. True: no ask of its shape waits any more.
  bool remove(Ask* ask) {
    Line* line = ask->line;
    line->remove(ask);
    if (!line->entries.empty()) return false;
    auto of_priority = groups.find(ask->priority);
    auto group = of_priority->second.find(ask->shape);
    auto& lines = group->second.lines;
    lines[line->place] = lines.back();
    lines[line->place]->place = line->place;
    lines.pop_back();
    line->gone = true;
    auto of_team = group->second.by_team.find(ask->team);
    buried_.push_back(std::move(of_team->second));
    group->second.by_team.erase(of_team);
    if (!lines.empty()) return false;
    of_priority->second.erase(group);
    if (of_priority->second.empty()) groups.erase(of_priority);
    return --ask->shape->uses == 0;
  }

  // Frees removed lines, when no reader is left.
  void bury() { buried_.clear(); }

 private:
  const Policy& policy_;
  std::vector<std::unique_ptr<Line>> buried_;

  double rank(const Ask& ask) const {
    if (ask.owed) return ask.owed_since - kOwedFirstS;
    if (policy_.order == Policy::Order::age) return ask.created;
    double size = ask.seconds * static_cast<double>(std::max<Gpus>(1, ask.first_world()));
    if (policy_.order == Policy::Order::shortest) return size;
    double stretched_s = policy_.stretch * size;
    return ask.created + policy_.longest_s * stretched_s / (policy_.longest_s + stretched_s);
  }
};

}  // namespace tuneyard
