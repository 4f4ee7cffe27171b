// Inputs of the scheduler as plain values: asks, attempts, teams and members. Times are seconds since the epoch, durations seconds.
// The fields are those of world.py, which explains them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tuneyard {

using Gpus = long long;

struct Key {
  std::string job, task;
  bool operator==(const Key& other) const { return job == other.job && task == other.task; }
  bool operator<(const Key& other) const { return std::tie(job, task) < std::tie(other.job, other.task); }
};

struct HashOfKey {
  size_t operator()(const Key& key) const {
    size_t job = std::hash<std::string>()(key.job), task = std::hash<std::string>()(key.task);
    return job ^ (task + 0x9e3779b97f4a7c15ull + (job << 6) + (job >> 2));
  }
};

// Names by number, in the order in which they were added.
class Names {
 public:
  int number(const std::string& name) {
    auto [found, is_new] = numbers_.try_emplace(name, static_cast<int>(names_.size()));
    if (is_new) names_.push_back(name);
    return found->second;
  }
  int find(const std::string& name) const {
    auto found = numbers_.find(name);
    return found == numbers_.end() ? -1 : found->second;
  }
  const std::string& operator[](int number) const { return names_[number]; }
  int size() const { return static_cast<int>(names_.size()); }

 private:
  std::unordered_map<std::string, int> numbers_;
  std::deque<std::string> names_;  // references to its elements stay valid
};

struct Policy {
  enum class Order { age, shortest, stretch };
  Order order = Order::age;
  bool strict = false, scores = false, preempts = false;
  long long reservations = 0, starves_from = 0;
  double stretch = 0, longest_s = 0, fairness_s = 0, borrowing_s = 0, settled_s = 0, settled_late_s = 0, spared_again_s = 0,
         starves_after = 0, starves_least_s = 0,
         starves_unsaved_s = 0, starves_settled_s = 0, half_life_s = 1, longest_settled_s = 0, grace_s = 0, restart_s = 0, far_s = 0, preference_s = 0,
         seconds_per_price = 0, fragmentation_s = 0;
};

struct NodeFacts {
  std::string name, sku;
  Gpus gpus = 0, free = 0;
};

struct SkuOffer {
  std::string name;
  Gpus gpus_per_node = 1;
  double price = 0;
  bool operator==(const SkuOffer& other) const {
    return name == other.name && gpus_per_node == other.gpus_per_node && price == other.price;
  }
};

struct MemberFacts {
  std::string name;
  std::vector<SkuOffer> skus;
  std::vector<NodeFacts> nodes;
  bool usable = true;
  std::string why_not;
  std::vector<std::string> near;

  // Whether both are equal, apart from free GPUs.
  bool has_layout_of(const MemberFacts& other) const {
    if (skus != other.skus || usable != other.usable || why_not != other.why_not || near != other.near) return false;
    if (nodes.size() != other.nodes.size()) return false;
    for (size_t at = 0; at < nodes.size(); ++at) {
      const NodeFacts &mine = nodes[at], &theirs = other.nodes[at];
      if (mine.gpus != theirs.gpus || mine.name != theirs.name || mine.sku != theirs.sku) return false;
    }
    return true;
  }
};

struct TeamFacts {
  bool has_quota = false;
  std::unordered_map<int, Gpus> quota, borrowing;  // by SKU
  double weight = 1.0;
  std::string cohort, closed;
  std::vector<std::pair<int, double>> used_s;
  double used_at = 0.0;

  bool has_rules_of(const TeamFacts& other) const {
    return has_quota == other.has_quota && quota == other.quota && borrowing == other.borrowing && cohort == other.cohort &&
           closed == other.closed;
  }
  Gpus quota_of(int sku) const {
    auto found = quota.find(sku);
    return found == quota.end() ? 0 : found->second;
  }
  // The borrowing limit. Null: no limit.
  const Gpus* borrows(int sku) const {
    auto found = borrowing.find(sku);
    return found == borrowing.end() ? nullptr : &found->second;
  }
};

struct Pool;
struct Shape;
struct Line;

using Takes = std::vector<std::pair<int, Gpus>>;  // GPUs by node of a pool

struct Ask {
  Key key;
  int team = 0;
  int priority = 0;
  double created = 0, seconds = 0, owed_since = 0;
  bool owed = false, preemptible = true;
  std::vector<std::string> near;
  Shape* shape = nullptr;
  Line* line = nullptr;
  double rank = 0;
  long long failed_layout = -1, failed_rules = -1;  // versions at its last refusal as infeasible
  void* object = nullptr;  // the Python object

  Gpus first_world() const;
  Gpus last_world() const;
};

// The order of asks in a line, and of heads.
inline bool comes_before(double rank, const Ask& ask, double other_rank, const Ask& other) {
  if (rank != other_rank) return rank < other_rank;
  if (ask.created != other.created) return ask.created < other.created;
  return ask.key < other.key;
}

// The least remaining time of an attempt that has overrun its prediction.
constexpr double kSoonS = 60.0;
inline double expected_end(double ends, double now) { return ends > now ? ends : now + std::max(kSoonS, now - ends); }

// The age that an earlier preemption adds to the last checkpoint of a candidate. It doubles with each preemption.
constexpr double kAgainS = 3600.0;

struct Attempt {
  Key key;
  int team = 0;
  int priority = 0;
  int pool = 0;
  Takes nodes;
  Gpus gpus = 0;
  double started = 0, ends = 0, saved = 0;
  bool preemptible = true, stopping = false, ended = false;
  long long preempted = 0;
  // When its last checkpoint was committed, as the choice of victims counts it: earlier preemptions of its task make it older.
  double counted_saved() const {
    if (!preempted) return saved;
    return saved - kAgainS * (std::ldexp(1.0, static_cast<int>(std::min<long long>(preempted, 16))) - 1.0);
  }
  void* object = nullptr;  // the Python object; null: made from `place` when it is first needed
  void* place = nullptr;   // its placement, where `object` is null
};

}  // namespace tuneyard
