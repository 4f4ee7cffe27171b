// The interface to Python: `Core` takes and returns the objects of world.py. native.py makes a scheduler of it.
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stdexcept>
#include <unordered_set>

#include "cycle.hpp"

namespace tuneyard {
namespace {

// A Python exception is set.
struct PythonError {};

// An owned reference, which the destructor releases.
class Owned {
 public:
  Owned() = default;
  explicit Owned(PyObject* object) : object_(object) {
    if (!object) throw PythonError();
  }
  Owned(Owned&& other) noexcept : object_(other.object_) { other.object_ = nullptr; }
  Owned& operator=(Owned&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  Owned(const Owned&) = delete;
  ~Owned() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }

 private:
  PyObject* object_ = nullptr;
};

// Stops Python's cyclic garbage collector: thousands of new placements would start it, and none of them is garbage.
class NoCollection {
 public:
  NoCollection() : was_on_(PyGC_Disable()) {}
  ~NoCollection() {
    if (was_on_) PyGC_Enable();
  }

 private:
  bool was_on_;
};

// Names of attributes, made once.
#define NAMES(X)                                                                                                                          \
  X(name) X(skus) X(nodes) X(usable) X(why_not) X(near) X(sku) X(gpus) X(free) X(gpus_per_node) X(price_per_gpu_hour) X(quota)            \
  X(borrowing) X(weight) X(cohort) X(used_s) X(used_at) X(closed) X(job) X(task) X(team) X(priority) X(created) X(worlds) X(unit)         \
  X(clusters) X(avoid) X(seconds) X(preemptible) X(owed_since) X(cluster) X(started) X(ends) X(saved) X(stopping) X(ended) X(preempted)   \
  X(ask) X(workers) X(pods) X(least) X(members) X(asks) X(running) X(teams)
struct Attributes {
#define DECLARE(attribute) PyObject* attribute = nullptr;
  NAMES(DECLARE)
#undef DECLARE
  void make() {
#define MAKE(attribute) attribute = PyUnicode_InternFromString(#attribute);
    NAMES(MAKE)
#undef MAKE
  }
} of;

Owned get(PyObject* object, PyObject* attribute) { return Owned(PyObject_GetAttr(object, attribute)); }

std::string text(PyObject* object) {
  Py_ssize_t size;
  const char* found = PyUnicode_AsUTF8AndSize(object, &size);
  if (!found) throw PythonError();
  return std::string(found, size);
}
std::string text_of(PyObject* object, PyObject* attribute) { return text(get(object, attribute).get()); }

double real(PyObject* object) {
  double found = PyFloat_AsDouble(object);
  if (found == -1.0 && PyErr_Occurred()) throw PythonError();
  return found;
}
double real_of(PyObject* object, PyObject* attribute) { return real(get(object, attribute).get()); }

double finite_of(PyObject* object, PyObject* attribute) {
  double found = real_of(object, attribute);
  if (!std::isfinite(found)) {
    PyErr_Format(PyExc_OverflowError, "%U is not finite", attribute);
    throw PythonError();
  }
  return found;
}

Gpus whole(PyObject* object) {
  long long found = PyLong_AsLongLong(object);
  if (found == -1 && PyErr_Occurred()) throw PythonError();
  return found;
}
// A whole number within bounds, so that sums stay within 64 bits.
Gpus whole_within(PyObject* object, Gpus least, Gpus most) {
  Gpus found = whole(object);
  if (found < least || found > most) {
    PyErr_Format(PyExc_OverflowError, "%lld is not between %lld and %lld", found, least, most);
    throw PythonError();
  }
  return found;
}
constexpr Gpus kMostGpus = 1ll << 40, kMostOfNode = 1 << 16;
Gpus gpus_of(PyObject* object, PyObject* attribute) { return whole_within(get(object, attribute).get(), -kMostGpus, kMostGpus); }

bool truth_of(PyObject* object, PyObject* attribute) {
  int found = PyObject_IsTrue(get(object, attribute).get());
  if (found < 0) throw PythonError();
  return found;
}

template <class Look>
void each_of(PyObject* items, Look look) {
  Owned iterator(PyObject_GetIter(items));
  while (PyObject* next = PyIter_Next(iterator.get())) {
    Owned item(next);
    look(item.get());
  }
  if (PyErr_Occurred()) throw PythonError();
}

template <class Look>
void each_item(PyObject* mapping, Look look) {
  if (PyDict_Check(mapping)) {
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(mapping, &at, &key, &value)) look(key, value);
    return;
  }
  Owned items(PyMapping_Items(mapping));
  each_of(items.get(), [&](PyObject* item) { look(PyTuple_GetItem(item, 0), PyTuple_GetItem(item, 1)); });
}

std::vector<std::string> texts_of(PyObject* object, PyObject* attribute) {
  std::vector<std::string> found;
  each_of(get(object, attribute).get(), [&](PyObject* item) { found.push_back(text(item)); });
  return found;
}

int priority_of(PyObject* object) {
  Owned name = get(object, of.priority);
  static const char* const names[] = {"low", "normal", "high", "urgent"};
  for (int priority = 0; priority < kPriorities; ++priority) {
    if (PyUnicode_Check(name.get()) && PyUnicode_CompareWithASCIIString(name.get(), names[priority]) == 0) return priority;
  }
  PyErr_SetObject(PyExc_KeyError, name.get());
  throw PythonError();
}

Key key_of(PyObject* object) { return {text_of(object, of.job), text_of(object, of.task)}; }

MemberFacts member_of(PyObject* member) {
  MemberFacts facts;
  facts.name = text_of(member, of.name);
  each_of(get(member, of.skus).get(), [&](PyObject* sku) {
    Gpus gpus_per_node = whole_within(get(sku, of.gpus_per_node).get(), 0, kMostOfNode);
    facts.skus.push_back({text_of(sku, of.name), gpus_per_node, real_of(sku, of.price_per_gpu_hour)});
  });
  each_of(get(member, of.nodes).get(), [&](PyObject* node) {
    Gpus gpus = whole_within(get(node, of.gpus).get(), 0, kMostOfNode);
    facts.nodes.push_back({text_of(node, of.name), text_of(node, of.sku), gpus, gpus_of(node, of.free)});
  });
  facts.usable = truth_of(member, of.usable);
  facts.why_not = text_of(member, of.why_not);
  facts.near = texts_of(member, of.near);
  return facts;
}

// Makers of Python objects: classes, and functions of native.py.
struct Makers {
  PyObject *place = nullptr, *new_object = nullptr, *running_of = nullptr, *stopped = nullptr, *owed = nullptr, *preempt = nullptr,
           *speed_factor = nullptr;
};

class Core : public Doing {
 public:
  Core(const Policy& policy, Makers makers)
      : policy_(policy), makers_(makers), teams_(pools_), lines_(policy_), cycles_(policy_, pools_, teams_, lines_, *this) {
    pools_.speed_factor = &Core::speed_factor;
    pools_.context = this;
    teams_.half_life_s = policy.half_life_s;
    for (PyObject* each : {makers.place, makers.new_object, makers.running_of, makers.stopped, makers.owed, makers.preempt, makers.speed_factor}) Py_INCREF(each);
  }

  ~Core() override {
    for (auto& [key, ask] : asks_) Py_XDECREF(object(ask->object));
    for (auto& [key, attempt] : attempts_) drop_objects(*attempt);
    for (PyObject* each :
         {makers_.place, makers_.new_object, makers_.running_of, makers_.stopped, makers_.owed, makers_.preempt, makers_.speed_factor}) {
      Py_XDECREF(each);
    }
  }

  // --- changes

  void set_member(PyObject* member) { pools_.set_member(member_of(member)); }

  void remove_member(PyObject* name) { pools_.remove_member(text(name)); }

  void set_team(PyObject* team) {
    TeamFacts facts;
    std::string name = text_of(team, of.name);
    Owned quota = get(team, of.quota), borrowing = get(team, of.borrowing), used_s = get(team, of.used_s);
    facts.has_quota = quota.get() != Py_None;
    auto take = [&](std::unordered_map<int, Gpus>& into) {
      return [&](PyObject* sku, PyObject* gpus) { into[pools_.skus.number(text(sku))] = whole_within(gpus, -kMostGpus, kMostGpus); };
    };
    if (facts.has_quota) each_item(quota.get(), take(facts.quota));
    each_item(borrowing.get(), take(facts.borrowing));
    each_item(used_s.get(), [&](PyObject* sku, PyObject* amount) { facts.used_s.emplace_back(pools_.skus.number(text(sku)), real(amount)); });
    facts.weight = real_of(team, of.weight);
    facts.cohort = text_of(team, of.cohort);
    facts.closed = text_of(team, of.closed);
    facts.used_at = real_of(team, of.used_at);
    teams_.set_team(name, std::move(facts));
  }

  // Adds an ask. True: the ask is new.
  bool add(PyObject* ask) {
    Key key = key_of(ask);
    if (attempts_.count(key)) return false;
    auto known = asks_.find(key);
    if (known != asks_.end()) {
      int same = PyObject_RichCompareBool(object(known->second->object), ask, Py_EQ);
      if (same < 0) throw PythonError();
      if (same) return false;
    }
    auto made = parse_ask(ask, key);
    if (known != asks_.end()) withdraw(key);
    insert(std::move(made));
    return true;
  }

  bool withdraw(const Key& key) {
    auto found = asks_.find(key);
    if (found == asks_.end()) return false;
    Ask* ask = found->second.get();
    Shape* shape = ask->shape;
    --teams_[ask->team].waits;
    changed_.insert(key);
    if (lines_.remove(ask)) forget(shape);
    Py_XDECREF(object(ask->object));
    asks_.erase(found);
    return true;
  }

  void hold(PyObject* running, double now) {
    Key key = key_of(running);
    auto made = parse_running(running, key);
    withdraw(key);
    auto before = attempts_.find(key);
    if (before != attempts_.end() && same(*before->second, *made)) return;
    if (before != attempts_.end() && before->second->pool != made->pool) {
      release(key, now);
      before = attempts_.end();
    }
    Py_INCREF(running);
    made->object = running;
    changed_.insert(key);
    if (before == attempts_.end()) {
      hold_new(std::move(made), now);
      return;
    }
    Attempt* attempt = before->second.get();
    bool same_nodes = same_takes(attempt->nodes, made->nodes);
    count(*attempt, now, -1);
    if (same_nodes) {
      pools_.count(attempt, -1);
    } else {
      pools_.hold(attempt, -1);
    }
    drop_objects(*attempt);
    *attempt = *made;
    count(*attempt, now, 1);
    if (same_nodes) {
      pools_.count(attempt, 1);
    } else {
      pools_.hold(attempt, 1);
    }
  }

  bool release(const Key& key, double now) {
    auto found = attempts_.find(key);
    if (found == attempts_.end()) return false;
    Attempt* attempt = found->second.get();
    changed_.insert(key);
    pools_.hold(attempt, -1);
    count(*attempt, now, -1);
    drop_objects(*attempt);
    attempts_.erase(found);
    return true;
  }

  // Loads a world at once, with the same result as one call for each member, team, attempt and ask.
  void load(PyObject* world, double now) {
    Owned running = get(world, of.running), asks = get(world, of.asks);
    std::unordered_map<std::string, std::unordered_map<std::string, Gpus>> held;
    each_of(running.get(), [&](PyObject* attempt) {
      auto& of_member = held[text_of(attempt, of.cluster)];
      each_item(get(attempt, of.nodes).get(), [&](PyObject* node, PyObject* gpus) { of_member[text(node)] += whole_within(gpus, 0, kMostGpus); });
    });
    std::vector<MemberFacts> members;
    each_of(get(world, of.members).get(), [&](PyObject* member) { members.push_back(member_of(member)); });
    std::sort(members.begin(), members.end(), [](auto& one, auto& other) { return one.name < other.name; });
    for (auto& member : members) {
      auto found = held.find(member.name);
      for (auto& node : member.nodes) {
        if (found == held.end()) break;
        auto gpus = found->second.find(node.name);
        if (gpus != found->second.end()) node.free += gpus->second;
      }
      pools_.set_member(std::move(member));
    }
    in_order(get(world, of.teams).get(), [](PyObject* team) { return text_of(team, of.name); }, [&](PyObject* team) { set_team(team); });
    in_order(running.get(), key_of, [&](PyObject* attempt) { hold(attempt, now); });
    std::vector<std::unique_ptr<Ask>> waiting;
    each_of(asks.get(), [&](PyObject* ask) {
      Key key = key_of(ask);
      if (!attempts_.count(key)) waiting.push_back(parse_ask(ask, key));
    });
    std::stable_sort(waiting.begin(), waiting.end(), [](auto& one, auto& other) {
      if (one->created != other->created) return one->created < other->created;
      return one->key < other->key;
    });
    for (auto& ask : waiting) {
      withdraw(ask->key);  // of two asks with one name, the later counts
      insert(std::move(ask));
    }
  }

  // --- decisions

  PyObject* cycle(double now) {
    NoCollection none;
    decisions_ = Owned(PyList_New(0));
    never_ = Owned(PyList_New(0));
    now_ = now;
    cycles_.run(now);
    return Owned(PyTuple_Pack(2, decisions_.get(), never_.get())).release();
  }

  void start(Ask* ask, const Placed& placed) override {
    Owned nodes(PyDict_New());
    for (auto [id, gpus] : placed.nodes) {
      const std::string& name = placed.pool->nodes[id].name;
      Owned key(PyUnicode_FromStringAndSize(name.data(), name.size())), value(PyLong_FromLongLong(gpus));
      if (PyDict_SetItem(nodes.get(), key.get(), value.get())) throw PythonError();
    }
    Owned place(PyObject_CallFunctionObjArgs(makers_.new_object, makers_.place, nullptr));
    auto set = [&](PyObject* attribute, PyObject* value) {
      if (PyObject_GenericSetAttr(place.get(), attribute, value)) throw PythonError();  // a frozen dataclass refuses setattr
    };
    set(of.ask, object(ask->object));
    set(of.cluster, name_of(*placed.pool, true));
    set(of.sku, name_of(*placed.pool, false));
    set(of.workers, Owned(PyLong_FromLongLong(placed.workers)).get());
    set(of.pods, Owned(PyLong_FromLongLong(placed.pods)).get());
    set(of.nodes, nodes.get());
    set(of.seconds, Owned(PyFloat_FromDouble(placed.seconds)).get());
    say(place.get());
    auto made = std::make_unique<Attempt>();
    made->key = ask->key;
    made->team = ask->team;
    made->priority = ask->priority;
    made->pool = placed.pool->index;
    made->nodes = placed.nodes;
    for (auto& each : placed.nodes) made->gpus += each.second;
    made->started = made->saved = now_;
    made->ends = now_ + placed.seconds;
    made->preemptible = ask->preemptible;
    made->place = place.release();
    withdraw(ask->key);
    hold_new(std::move(made), now_);
  }

  void ask_to_go(const Attempt* victim, const Ask& ask, bool has_starved) override {
    Attempt* attempt = attempts_.at(victim->key).get();
    Owned running(running_object(*attempt));
    changed_.insert(attempt->key);
    Owned now(PyFloat_FromDouble(now_));
    say(Owned(PyObject_CallFunctionObjArgs(makers_.preempt, running.get(), object(ask.object), now.get(), has_starved ? Py_True : Py_False,
                                           nullptr))
            .get());
    count(*attempt, now_, -1);
    pools_.count(attempt, -1);
    drop_objects(*attempt);
    attempt->stopping = true;
    attempt->ends = now_ + policy_.grace_s;
    Owned ends(PyFloat_FromDouble(attempt->ends));
    attempt->object = Owned(PyObject_CallFunctionObjArgs(makers_.stopped, running.get(), ends.get(), nullptr)).release();
    count(*attempt, now_, 1);
    pools_.count(attempt, 1);
  }

  void owe(Ask* ask) override {
    if (ask->owed) return;
    Owned since(PyFloat_FromDouble(now_));
    Owned owed(PyObject_CallFunctionObjArgs(makers_.owed, object(ask->object), since.get(), nullptr));
    Shape* shape = ask->shape;
    ++shape->uses;  // keeps the shape while the ask moves
    changed_.insert(ask->key);
    lines_.remove(ask);
    ask->owed = true;
    ask->owed_since = now_;
    lines_.add(ask);
    --shape->uses;
    Py_XDECREF(object(ask->object));
    ask->object = owed.release();
  }

  void never(Ask* ask) override {
    if (PyList_Append(never_.get(), object(ask->object))) throw PythonError();
  }

  // --- state

  PyObject* attempt(const Key& key) {
    auto found = attempts_.find(key);
    if (found == attempts_.end()) return nullptr;
    return running_object(*found->second);
  }

  PyObject* ask(const Key& key) {
    auto found = asks_.find(key);
    if (found == asks_.end()) return nullptr;
    PyObject* ask = object(found->second->object);
    Py_INCREF(ask);
    return ask;
  }

  // (job, task) of all asks and attempts that were added, changed or removed since the last call.
  PyObject* changed() {
    Owned found(PyList_New(0));
    for (auto& key : changed_) {
      Owned both(Py_BuildValue("(s#s#)", key.job.data(), static_cast<Py_ssize_t>(key.job.size()), key.task.data(),
                               static_cast<Py_ssize_t>(key.task.size())));
      if (PyList_Append(found.get(), both.get())) throw PythonError();
    }
    changed_.clear();
    return found.release();
  }

  PyObject* asks() {
    Owned found(PyList_New(0));
    for (auto& [key, ask] : asks_) {
      if (PyList_Append(found.get(), object(ask->object))) throw PythonError();
    }
    return found.release();
  }

  PyObject* running() {
    Owned found(PyList_New(0));
    for (auto& [key, attempt] : attempts_) {
      Owned each(running_object(*attempt));
      if (PyList_Append(found.get(), each.get())) throw PythonError();
    }
    return found.release();
  }

  Py_ssize_t waiting() const { return static_cast<Py_ssize_t>(asks_.size()); }

  void settle(double now) { teams_.settle_all(now); }

  // Team -> (SKU -> decayed GPU-seconds, time of this value).
  PyObject* usage() {
    Owned found(PyDict_New());
    for (int team : teams_.order) {
      Owned used(PyDict_New());
      for (auto [sku, amount] : teams_.usage(team)) {
        Owned value(PyFloat_FromDouble(amount));
        if (PyDict_SetItemString(used.get(), pools_.skus[sku].c_str(), value.get())) throw PythonError();
      }
      const std::string& name = teams_.names[team];
      Owned key(PyUnicode_FromStringAndSize(name.data(), name.size()));
      Owned both(Py_BuildValue("(Od)", used.get(), teams_.accounts[team].at));
      if (PyDict_SetItem(found.get(), key.get(), both.get())) throw PythonError();
    }
    return found.release();
  }

  // (job, task), cluster, SKU, until, needs, withheld, lent until.
  PyObject* reservations() {
    Owned found(PyList_New(0));
    for (auto& each : cycles_.reservations) {
      Owned needs(takes(*each.pool, each.needs)), withheld(takes(*each.pool, each.withheld));
      Owned made(Py_BuildValue("((s#s#)OOdOOd)", each.key.job.data(), static_cast<Py_ssize_t>(each.key.job.size()), each.key.task.data(),
                               static_cast<Py_ssize_t>(each.key.task.size()), name_of(*each.pool, true), name_of(*each.pool, false), each.until,
                               needs.get(), withheld.get(), each.lent_until));
      if (PyList_Append(found.get(), made.get())) throw PythonError();
    }
    return found.release();
  }

  bool unfinished() const { return cycles_.preempting.unfinished; }
  double again_at() const { return cycles_.preempting.again_at; }

 private:
  Policy policy_;
  Makers makers_;
  Pools pools_;
  Teams teams_;
  Lines lines_;
  Cycles cycles_;
  std::unordered_map<Key, std::unique_ptr<Ask>, HashOfKey> asks_;
  std::unordered_map<Key, std::unique_ptr<Attempt>, HashOfKey> attempts_;
  std::map<std::string, std::unique_ptr<Shape>> shapes_;
  std::vector<std::pair<Owned, Owned>> pool_names_;
  Owned decisions_, never_;
  std::unordered_set<Key, HashOfKey> changed_;  // since the last call of `changed`
  long long serial_ = 0;
  double now_ = 0.0;
  std::string scratch_;

  static PyObject* object(void* of_some) { return static_cast<PyObject*>(of_some); }

  static double speed_factor(const std::string& sku, void* context) {
    Owned name(PyUnicode_FromStringAndSize(sku.data(), sku.size()));
    return real(Owned(PyObject_CallFunctionObjArgs(static_cast<Core*>(context)->makers_.speed_factor, name.get(), nullptr)).get());
  }

  void say(PyObject* decision) {
    if (PyList_Append(decisions_.get(), decision)) throw PythonError();
  }

  PyObject* name_of(const Pool& pool, bool of_member) {
    for (size_t index = pool_names_.size(); index < pools_.all.size(); ++index) {
      auto text = [](const std::string& name) { return Owned(PyUnicode_FromStringAndSize(name.data(), name.size())); };
      pool_names_.emplace_back(text(*pools_.all[index]->member_name), text(*pools_.all[index]->sku_name));
    }
    return of_member ? pool_names_[pool.index].first.get() : pool_names_[pool.index].second.get();
  }

  PyObject* takes(const Pool& pool, const Takes& of_nodes) {
    Owned found(PyDict_New());
    for (auto [id, gpus] : of_nodes) {
      const std::string& name = pool.nodes[id].name;
      Owned key(PyUnicode_FromStringAndSize(name.data(), name.size())), value(PyLong_FromLongLong(gpus));
      if (PyDict_SetItem(found.get(), key.get(), value.get())) throw PythonError();
    }
    return found.release();
  }

  void drop_objects(Attempt& attempt) {
    Py_XDECREF(object(attempt.object));
    Py_XDECREF(object(attempt.place));
    attempt.object = attempt.place = nullptr;
  }

  PyObject* running_object(Attempt& attempt) {
    if (!attempt.object) {
      Owned started(PyFloat_FromDouble(attempt.started));
      attempt.object = Owned(PyObject_CallFunctionObjArgs(makers_.running_of, object(attempt.place), started.get(), nullptr)).release();
      Py_XDECREF(object(attempt.place));
      attempt.place = nullptr;
    }
    Py_INCREF(object(attempt.object));
    return object(attempt.object);
  }

  void count(Attempt& attempt, double now, int sign) {
    if (!attempt.ended) teams_.hold(attempt, pools_.all[attempt.pool]->sku, now, sign);
    cycles_.preempting.count(attempt, sign);
  }

  void hold_new(std::unique_ptr<Attempt> made, double now) {
    Attempt* attempt = made.get();
    attempts_[attempt->key] = std::move(made);
    count(*attempt, now, 1);
    pools_.hold(attempt, 1);
  }

  static bool same_takes(const Takes& one, const Takes& other) {
    return one.size() == other.size() && std::is_permutation(one.begin(), one.end(), other.begin());
  }

  static bool same(const Attempt& one, const Attempt& other) {
    return one.team == other.team && one.priority == other.priority && one.pool == other.pool && one.started == other.started &&
           one.ends == other.ends && one.saved == other.saved && one.preemptible == other.preemptible && one.stopping == other.stopping &&
           one.ended == other.ended && one.preempted == other.preempted && same_takes(one.nodes, other.nodes);
  }

  void insert(std::unique_ptr<Ask> made) {
    Ask* ask = made.get();
    changed_.insert(ask->key);
    asks_[ask->key] = std::move(made);
    lines_.add(ask);
    --ask->shape->uses;
    ++teams_[ask->team].waits;
  }

  void forget(Shape* shape) { shapes_.erase(key_text(*shape)); }

  const std::string& key_text(const Shape& shape) {
    scratch_.clear();
    auto put = [&](const std::string& name) { scratch_.append(std::to_string(name.size())).append(":").append(name); };
    for (Gpus each : shape.worlds) scratch_.append(std::to_string(each)).append(",");
    scratch_.append("/").append(std::to_string(shape.unit)).append("/");
    for (auto& each : shape.skus) put(each);
    scratch_.append("/");
    for (auto& each : shape.clusters) put(each);
    scratch_.append("/");
    for (auto& [member, node] : shape.avoid) {
      put(member);
      put(node);
    }
    scratch_.append("/");
    for (auto& [sku, gpus] : shape.least) {
      put(sku);
      scratch_.append(std::to_string(gpus)).append(",");
    }
    return scratch_;
  }

  Shape* shape_of(PyObject* ask) {
    Shape made;
    each_of(get(ask, of.worlds).get(), [&](PyObject* world) { made.worlds.push_back(whole_within(world, 0, kMostGpus)); });
    if (made.worlds.empty()) {
      PyErr_SetString(PyExc_ValueError, "an ask needs a number of workers");
      throw PythonError();
    }
    made.unit = whole_within(get(ask, of.unit).get(), 1, kMostGpus);
    made.skus = texts_of(ask, of.skus);
    made.clusters = texts_of(ask, of.clusters);
    each_of(get(ask, of.avoid).get(), [&](PyObject* pair) {
      Owned member(PySequence_GetItem(pair, 0)), node(PySequence_GetItem(pair, 1));
      made.avoid.emplace_back(text(member.get()), text(node.get()));
    });
    std::sort(made.avoid.begin(), made.avoid.end());
    each_of(get(ask, of.least).get(), [&](PyObject* pair) {
      Owned sku(PySequence_GetItem(pair, 0)), gpus(PySequence_GetItem(pair, 1));
      made.least.emplace_back(text(sku.get()), whole_within(gpus.get(), -kMostGpus, kMostGpus));
    });
    auto [found, is_new] = shapes_.try_emplace(key_text(made));
    if (is_new) {
      made.serial = ++serial_;
      found->second = std::make_unique<Shape>(std::move(made));
    }
    return found->second.get();
  }

  std::unique_ptr<Ask> parse_ask(PyObject* ask, const Key& key) {
    auto made = std::make_unique<Ask>();
    made->key = key;
    made->team = teams_.number(text_of(ask, of.team));
    made->priority = priority_of(ask);
    made->created = finite_of(ask, of.created);
    made->seconds = finite_of(ask, of.seconds);
    made->near = texts_of(ask, of.near);
    made->preemptible = truth_of(ask, of.preemptible);
    Owned owed = get(ask, of.owed_since);
    made->owed = owed.get() != Py_None;
    if (made->owed) made->owed_since = real(owed.get());
    made->shape = shape_of(ask);
    ++made->shape->uses;  // until the ask is in its line
    Py_INCREF(ask);
    made->object = ask;
    return made;
  }

  std::unique_ptr<Attempt> parse_running(PyObject* running, const Key& key) {
    auto made = std::make_unique<Attempt>();
    made->key = key;
    made->team = teams_.number(text_of(running, of.team));
    made->priority = priority_of(running);
    Pool& pool = pools_.pool(text_of(running, of.cluster), text_of(running, of.sku));
    made->pool = pool.index;
    each_item(get(running, of.nodes).get(), [&](PyObject* node, PyObject* gpus) {
      made->nodes.emplace_back(pool.node(text(node)), whole_within(gpus, 0, kMostGpus));
      made->gpus += made->nodes.back().second;
    });
    made->started = real_of(running, of.started);
    made->ends = real_of(running, of.ends);
    made->saved = real_of(running, of.saved);
    made->preemptible = truth_of(running, of.preemptible);
    made->stopping = truth_of(running, of.stopping);
    made->ended = truth_of(running, of.ended);
    made->preempted = whole(get(running, of.preempted).get());
    return made;
  }

  template <class KeyOf, class Take>
  static void in_order(PyObject* items, KeyOf key, Take take) {
    std::vector<std::pair<decltype(key(items)), Owned>> sorted;
    each_of(items, [&](PyObject* item) {
      Py_INCREF(item);
      sorted.emplace_back(key(item), Owned(item));
    });
    std::stable_sort(sorted.begin(), sorted.end(), [](auto& one, auto& other) { return one.first < other.first; });
    for (auto& each : sorted) take(each.second.get());
  }
};

// --- the type

struct CoreObject {
  PyObject_HEAD
  Core* core;
};

template <class Run>
PyObject* guarded(Run run) {
  try {
    return run();
  } catch (const PythonError&) {
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

Core& core_of(PyObject* self) { return *reinterpret_cast<CoreObject*>(self)->core; }

PyObject* none() {
  Py_INCREF(Py_None);
  return Py_None;
}

Key key_of_arguments(PyObject* arguments) {
  const char *job, *task;
  Py_ssize_t job_size, task_size;
  if (!PyArg_ParseTuple(arguments, "s#s#", &job, &job_size, &task, &task_size)) throw PythonError();
  return {std::string(job, job_size), std::string(task, task_size)};
}

Policy policy_of(PyObject* policy) {
  Policy made;
  auto real = [&](const char* name) { return tuneyard::real(Owned(PyObject_GetAttrString(policy, name)).get()); };
  auto truth = [&](const char* name) { return PyObject_IsTrue(Owned(PyObject_GetAttrString(policy, name)).get()) > 0; };
  auto is = [&](const char* name, const char* value) {
    return PyUnicode_CompareWithASCIIString(Owned(PyObject_GetAttrString(policy, name)).get(), value) == 0;
  };
  made.order = is("order", "age") ? Policy::Order::age : is("order", "shortest") ? Policy::Order::shortest : Policy::Order::stretch;
  made.strict = truth("strict");
  made.scores = is("choice", "score");
  made.preempts = truth("preempts");
  made.reservations = whole(Owned(PyObject_GetAttrString(policy, "reservations")).get());
  made.starves_from = whole(Owned(PyObject_GetAttrString(policy, "starves_from")).get());
#define READ(field) made.field = real(#field);
  READ(stretch) READ(longest_s) READ(fairness_s) READ(borrowing_s) READ(settled_s) READ(settled_late_s) READ(spared_again_s)
  READ(starves_after) READ(starves_least_s)
  READ(starves_unsaved_s) READ(starves_settled_s) READ(half_life_s) READ(longest_settled_s) READ(grace_s) READ(restart_s) READ(far_s) READ(preference_s)
  READ(seconds_per_price) READ(fragmentation_s)
#undef READ
  return made;
}

PyObject* core_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
  return guarded([&]() -> PyObject* {
    PyObject* policy;
    Makers makers;
    if (!PyArg_ParseTuple(arguments, "OOOOOOOO", &policy, &makers.place, &makers.new_object, &makers.running_of, &makers.stopped, &makers.owed,
                          &makers.preempt, &makers.speed_factor)) {
      throw PythonError();
    }
    auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
    Owned self(allocate(type, 0));
    reinterpret_cast<CoreObject*>(self.get())->core = nullptr;
    reinterpret_cast<CoreObject*>(self.get())->core = new Core(policy_of(policy), makers);
    return self.release();
  });
}

void core_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<CoreObject*>(self)->core;
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

#define METHOD(name, ...) \
  PyObject* core_##name(PyObject* self, PyObject* argument) { return guarded([&]() -> PyObject* { __VA_ARGS__ }); }

METHOD(set_member, core_of(self).set_member(argument); return none();)
METHOD(remove_member, core_of(self).remove_member(argument); return none();)
METHOD(set_team, core_of(self).set_team(argument); return none();)
METHOD(add, return PyBool_FromLong(core_of(self).add(argument));)
METHOD(withdraw, return PyBool_FromLong(core_of(self).withdraw(key_of_arguments(argument)));)
METHOD(cycle, return core_of(self).cycle(real(argument));)
METHOD(changed, (void)argument; return core_of(self).changed();)
METHOD(asks, (void)argument; return core_of(self).asks();)
METHOD(running, (void)argument; return core_of(self).running();)
METHOD(waiting, (void)argument; return PyLong_FromSsize_t(core_of(self).waiting());)
METHOD(usage, (void)argument; return core_of(self).usage();)
METHOD(settle, core_of(self).settle(real(argument)); return none();)
METHOD(reservations, (void)argument; return core_of(self).reservations();)
METHOD(unfinished, (void)argument; return PyBool_FromLong(core_of(self).unfinished());)
METHOD(again_at, (void)argument; return PyFloat_FromDouble(core_of(self).again_at());)
METHOD(attempt, PyObject* found = core_of(self).attempt(key_of_arguments(argument)); return found ? found : none();)
METHOD(ask, PyObject* found = core_of(self).ask(key_of_arguments(argument)); return found ? found : none();)
METHOD(hold, PyObject* running; double now; if (!PyArg_ParseTuple(argument, "Od", &running, &now)) throw PythonError();
       core_of(self).hold(running, now); return none();)
METHOD(load, PyObject* world; double now; if (!PyArg_ParseTuple(argument, "Od", &world, &now)) throw PythonError();
       core_of(self).load(world, now); return none();)
METHOD(release, const char* job; const char* task; Py_ssize_t job_size, task_size; double now;
       if (!PyArg_ParseTuple(argument, "s#s#d", &job, &job_size, &task, &task_size, &now)) throw PythonError();
       return PyBool_FromLong(core_of(self).release({std::string(job, job_size), std::string(task, task_size)}, now));)

PyMethodDef methods[] = {
    {"set_member", core_set_member, METH_O, "Take in a Member."},
    {"remove_member", core_remove_member, METH_O, "A member is gone."},
    {"set_team", core_set_team, METH_O, "Take in a Team."},
    {"add", core_add, METH_O, "An Ask waits. True where that is new."},
    {"withdraw", core_withdraw, METH_VARARGS, "(job, task) waits no more. True where it did."},
    {"hold", core_hold, METH_VARARGS, "(Running, now): it holds GPUs."},
    {"release", core_release, METH_VARARGS, "(job, task, now): nothing is left of it. True where there was."},
    {"load", core_load, METH_VARARGS, "(World, now): take it all in."},
    {"cycle", core_cycle, METH_O, "Place and Preempt, as decided; and asks that could never run."},
    {"attempt", core_attempt, METH_VARARGS, "(job, task): the Running, or None."},
    {"ask", core_ask, METH_VARARGS, "(job, task): the Ask, or None."},
    {"changed", core_changed, METH_NOARGS, "(job, task) of what has changed since this was last asked."},
    {"asks", core_asks, METH_NOARGS, "All that wait."},
    {"running", core_running, METH_NOARGS, "All that run."},
    {"waiting", core_waiting, METH_NOARGS, "How many wait."},
    {"settle", core_settle, METH_O, "now: bring what teams have used up to now."},
    {"usage", core_usage, METH_NOARGS, "By team, decayed GPU-seconds by SKU, and as of when."},
    {"reservations", core_reservations, METH_NOARGS, "Of the last cycle."},
    {"unfinished", core_unfinished, METH_NOARGS, "Whether another cycle would go on."},
    {"again_at", core_again_at, METH_NOARGS, "When another cycle may decide more."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(core_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(core_dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_doc, const_cast<char*>("State and cycle of a scheduler.")},
    {0, nullptr},
};
PyType_Spec spec = {"tuneyard.federation._core.Core", sizeof(CoreObject), 0, Py_TPFLAGS_DEFAULT, slots};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_core", "The scheduler's core.", -1, nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace tuneyard

extern "C" __attribute__((visibility("default"))) PyObject* PyInit__core() {
  tuneyard::of.make();
  PyObject* module = PyModule_Create(&tuneyard::definition);
  if (!module) return nullptr;
  PyObject* type = PyType_FromSpec(&tuneyard::spec);
  if (!type || PyModule_AddObject(module, "Core", type)) {
    Py_XDECREF(type);
    Py_DECREF(module);
    return nullptr;
  }
  return module;
}
