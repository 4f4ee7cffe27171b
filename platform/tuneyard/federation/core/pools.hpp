// Free GPUs of all members, by pool: the nodes of one SKU in one member. As pools.py.
#pragma once

#include <algorithm>
#include <map>
#include <memory>

#include "facts.hpp"

namespace tuneyard {

// A set of small numbers, read in order.
class Bits {
 public:
  void resize(size_t size) { words_.assign((size + 63) / 64, 0); }
  void set(int at) { words_[at >> 6] |= 1ull << (at & 63); }
  void clear(int at) { words_[at >> 6] &= ~(1ull << (at & 63)); }
  // Calls `look(number)` in order until it returns false.
  template <class Look>
  bool each(Look look) const {
    for (size_t word = 0; word < words_.size(); ++word) {
      for (uint64_t left = words_[word]; left; left &= left - 1) {
        if (!look(static_cast<int>(word * 64 + __builtin_ctzll(left)))) return false;
      }
    }
    return true;
  }

 private:
  std::vector<uint64_t> words_;
};

struct Node {
  std::string name;
  Gpus total = 0, base = 0, held = 0, free = 0;
  bool there = false;  // its member has it; false: only attempts are left on it
  int rank = -1;       // its place by name among present nodes
};

inline bool ends_before(const Attempt* one, const Attempt* other) {
  if (one->ends != other->ends) return one->ends < other->ends;
  return one->key < other->key;
}

struct Pool {
  int index = 0, member = 0, sku = 0;
  const std::string *member_name = nullptr, *sku_name = nullptr;
  double speed_factor = 1.0;
  bool is_cpu = false, present = false, usable = false;
  Gpus gpus_per_node = 1;
  double price = 0.0;
  std::vector<std::string> near;
  std::vector<Node> nodes;
  std::unordered_map<std::string, int> id_of;
  std::vector<int> by_name;    // present nodes
  std::vector<Bits> by_free;   // by free GPUs, ranks of nodes
  std::vector<Gpus> counts;    // number of nodes, by free GPUs
  std::vector<Attempt*> running;  // by predicted end
  Gpus stopping = 0;
  long long version = 0;

  int node(const std::string& name) {
    auto [found, is_new] = id_of.try_emplace(name, static_cast<int>(nodes.size()));
    if (is_new) {
      nodes.emplace_back();
      nodes.back().name = name;
    }
    return found->second;
  }

  // Pods of this size that fit into free GPUs.
  Gpus room(Gpus size) const {
    Gpus found = 0;
    for (size_t free = size; free < counts.size(); ++free) found += counts[free] * static_cast<Gpus>(free / size);
    return found;
  }

  // The same, where `without` GPUs of nodes stay free.
  Gpus room(Gpus size, const Takes& without) const {
    Gpus found = room(size);
    for (auto [id, gpus] : without) {
      Gpus free = nodes[id].there ? nodes[id].free : 0;
      found -= free / size - std::max<Gpus>(0, free - gpus) / size;
    }
    return found;
  }

  Gpus free_gpus() const { return room(1); }

  // GPUs by node for a number of pods: fullest nodes first, so that empty nodes stay whole.
  Takes pick(Gpus pods, Gpus size, const Takes& without) const {
    Takes taken;
    Gpus left = pods;
    for (size_t free = size; free < by_free.size() && left; ++free) {
      by_free[free].each([&](int rank) {
        int id = by_name[rank];
        Gpus room = static_cast<Gpus>(free);
        for (auto [other, gpus] : without) {
          if (other == id) room -= gpus;
        }
        Gpus count = std::min(left, room < 0 ? 0 : room / size);
        if (count > 0) {
          taken.emplace_back(id, count * size);
          left -= count;
        }
        return left > 0;
      });
    }
    return taken;
  }

  std::vector<int>& teams() {
    if (teams_at_ != version) {
      teams_at_ = version;
      teams_.clear();
      for (const Attempt* each : running) teams_.push_back(each->team);
      std::sort(teams_.begin(), teams_.end());
      teams_.erase(std::unique(teams_.begin(), teams_.end()), teams_.end());
    }
    return teams_;
  }

 private:
  long long teams_at_ = -1;
  std::vector<int> teams_;
};

class Pools {
 public:
  std::vector<std::unique_ptr<Pool>> all;
  Names skus, member_names;
  std::unordered_map<int, MemberFacts> members;
  long long layout = 0, changes = 0;
  // Gives the speed of a SKU. It is called once for each SKU.
  double (*speed_factor)(const std::string& sku, void* context) = nullptr;
  void* context = nullptr;

  Pool* get(int member, int sku) {
    auto found = by_name_.find({member, sku});
    return found == by_name_.end() ? nullptr : all[found->second].get();
  }

  Pool& pool(const std::string& member, const std::string& sku) {
    Pool* found = get(member_names.number(member), skus.number(sku));
    return found ? *found : add(member, {sku, 1, 0.0});
  }

  void set_member(MemberFacts facts) {
    int number = member_names.number(facts.name);
    auto before = members.find(number);
    if (before == members.end() || !before->second.has_layout_of(facts)) ++layout;
    std::vector<int> listed;
    auto list = [&](const std::string& name) {
      int sku = skus.number(name);
      if (std::find(listed.begin(), listed.end(), sku) == listed.end()) listed.push_back(sku);
    };
    for (auto& sku : facts.skus) list(sku.name);
    for (auto& node : facts.nodes) list(node.sku);
    std::vector<int> there = listed;
    for (auto& pool : all) {
      if (pool->member == number && std::find(there.begin(), there.end(), pool->sku) == there.end()) there.push_back(pool->sku);
    }
    for (int sku : there) {
      std::unordered_map<std::string, std::pair<Gpus, Gpus>> nodes;
      Gpus most = -1;
      for (auto& node : facts.nodes) {
        if (node.sku == skus[sku]) nodes[node.name] = {node.gpus, std::min(node.free, node.gpus)};
      }
      for (auto& [name, gpus] : nodes) most = std::max(most, gpus.first);
      SkuOffer offer{skus[sku], most < 0 ? 1 : most, 0.0};
      for (auto& each : facts.skus) {
        if (each.name == skus[sku]) {
          offer = each;
          break;
        }
      }
      bool present = std::find(listed.begin(), listed.end(), sku) != listed.end();
      set_pool(facts, offer, nodes, present);
    }
    members[number] = std::move(facts);
  }

  void remove_member(const std::string& name) {
    int number = member_names.find(name);
    if (number < 0 || !members.erase(number)) return;
    ++layout;
    for (auto& pool : all) {
      if (pool->member != number) continue;
      for (int id : pool->by_name) pool->nodes[id].there = false;
      place_nodes(*pool);
      pool->present = pool->usable = false;
      touch(*pool);
    }
  }

  void hold(Attempt* attempt, int sign) {
    Pool& pool = *all[attempt->pool];
    for (auto [id, gpus] : attempt->nodes) {
      Node& node = pool.nodes[id];
      node.held += sign * gpus;
      if (node.there) move(pool, id, std::max<Gpus>(0, node.base - node.held));
    }
    count(attempt, sign);
  }

  // Adds an attempt to the order of ends and to stopping attempts, or removes it (`sign` -1). Free GPUs stay as they are.
  void count(Attempt* attempt, int sign) {
    Pool& pool = *all[attempt->pool];
    if (attempt->stopping) pool.stopping += sign * attempt->gpus;
    auto at = std::lower_bound(pool.running.begin(), pool.running.end(), attempt, ends_before);
    if (sign > 0) {
      pool.running.insert(at, attempt);
    } else {
      pool.running.erase(at);
    }
    touch(pool);
  }

  // SKUs of all pools, with their number of GPUs.
  const std::vector<std::pair<int, Gpus>>& capacity() {
    if (refreshed_ != layout) {
      refreshed_ = layout;
      capacity_.clear();
      whole_room_.clear();
      for (auto& pool : all) {
        Gpus total = 0;
        for (int id : pool->by_name) total += pool->nodes[id].total;
        auto found = std::find_if(capacity_.begin(), capacity_.end(), [&](auto& each) { return each.first == pool->sku; });
        if (found == capacity_.end()) {
          capacity_.emplace_back(pool->sku, total);
        } else {
          found->second += total;
        }
      }
    }
    return capacity_;
  }

  // Pods of this size that would fit into empty nodes, by pool; at least 1.
  const std::vector<Gpus>& whole_room(Gpus size) {
    capacity();
    auto [found, is_new] = whole_room_.try_emplace(size);
    if (is_new) {
      for (auto& pool : all) {
        Gpus room = 0;
        for (int id : pool->by_name) room += pool->nodes[id].total / size;
        found->second.push_back(std::max<Gpus>(1, room));
      }
    }
    return found->second;
  }

  // Pods of this size that fit into free GPUs, by pool; kept up to date.
  const std::vector<Gpus>& room(Gpus size) {
    auto [found, is_new] = room_.try_emplace(size);
    if (is_new) {
      for (auto& pool : all) found->second.push_back(pool->room(size));
    }
    return found->second;
  }

 private:
  std::map<std::pair<int, int>, int> by_name_;
  long long refreshed_ = -1;
  std::vector<std::pair<int, Gpus>> capacity_;
  std::unordered_map<Gpus, std::vector<Gpus>> whole_room_;
  std::map<Gpus, std::vector<Gpus>> room_;

  void touch(Pool& pool) { pool.version = ++changes; }

  Pool& add(const std::string& member, const SkuOffer& offer) {
    auto made = std::make_unique<Pool>();
    Pool& pool = *made;
    pool.index = static_cast<int>(all.size());
    pool.member = member_names.number(member);
    pool.sku = skus.number(offer.name);
    pool.member_name = &member_names[pool.member];
    pool.sku_name = &skus[pool.sku];
    pool.gpus_per_node = offer.gpus_per_node;
    pool.price = offer.price;
    pool.is_cpu = offer.name == "cpu";
    pool.speed_factor = speed_factor(offer.name, context);
    pool.counts.assign(9, 0);
    pool.by_free.resize(9);
    by_name_[{pool.member, pool.sku}] = pool.index;
    all.push_back(std::move(made));
    room_.clear();
    ++layout;
    return pool;
  }

  void set_pool(const MemberFacts& member, const SkuOffer& offer, const std::unordered_map<std::string, std::pair<Gpus, Gpus>>& nodes,
                bool present) {
    Pool& pool = this->pool(member.name, offer.name);
    pool.gpus_per_node = offer.gpus_per_node;
    pool.price = offer.price;
    pool.usable = member.usable;
    pool.near = member.near;
    pool.present = present;
    bool same_nodes = nodes.size() == pool.by_name.size(), same = same_nodes;
    for (auto& [name, gpus] : nodes) {
      auto known = pool.id_of.find(name);
      bool is_there = known != pool.id_of.end() && pool.nodes[known->second].there;
      if (!is_there || pool.nodes[known->second].total != gpus.first) same_nodes = same = false;
      if (is_there && pool.nodes[known->second].base != gpus.second) same = false;
    }
    if (same) return;
    touch(pool);
    if (same_nodes) {
      for (auto& [name, gpus] : nodes) {
        int id = pool.id_of[name];
        pool.nodes[id].base = gpus.second;
        move(pool, id, std::max<Gpus>(0, gpus.second - pool.nodes[id].held));
      }
      return;
    }
    for (int id : pool.by_name) pool.nodes[id].there = false;
    for (auto& [name, gpus] : nodes) {
      Node& node = pool.nodes[pool.node(name)];
      node.there = true;
      node.total = gpus.first;
      node.base = gpus.second;
    }
    place_nodes(pool);
  }

  // Sort nodes again, by name and by free GPUs.
  void place_nodes(Pool& pool) {
    pool.by_name.clear();
    Gpus most = 8;
    for (size_t id = 0; id < pool.nodes.size(); ++id) {
      Node& node = pool.nodes[id];
      if (!node.there) {
        node.total = node.base = node.free = 0;
        node.rank = -1;
        continue;
      }
      pool.by_name.push_back(static_cast<int>(id));
      most = std::max(most, node.total);
    }
    std::sort(pool.by_name.begin(), pool.by_name.end(), [&](int one, int other) { return pool.nodes[one].name < pool.nodes[other].name; });
    pool.counts.assign(most + 1, 0);
    pool.by_free.assign(most + 1, Bits());
    for (auto& bits : pool.by_free) bits.resize(pool.by_name.size());
    for (size_t rank = 0; rank < pool.by_name.size(); ++rank) {
      Node& node = pool.nodes[pool.by_name[rank]];
      node.rank = static_cast<int>(rank);
      node.free = std::max<Gpus>(0, node.base - node.held);
      ++pool.counts[node.free];
      pool.by_free[node.free].set(node.rank);
    }
    for (auto& [size, rooms] : room_) rooms[pool.index] = pool.room(size);
  }

  void move(Pool& pool, int id, Gpus free) {
    Node& node = pool.nodes[id];
    Gpus before = node.free;
    if (before == free) return;
    pool.by_free[before].clear(node.rank);
    pool.by_free[free].set(node.rank);
    --pool.counts[before];
    ++pool.counts[free];
    node.free = free;
    for (auto& [size, rooms] : room_) rooms[pool.index] += free / size - before / size;
  }
};

}  // namespace tuneyard
