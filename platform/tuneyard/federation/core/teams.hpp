// Quota, borrowing and fair share. As teams.py.
#pragma once

#include <cmath>
#include <limits>
#include <set>

#include "pools.hpp"

namespace tuneyard {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The compiler must not rewrite pow: shares equal those of the Python version to the last bit.
inline double power(double base, double exponent) {
  volatile double of = base;
  return std::pow(of, exponent);
}

struct Account {
  TeamFacts team;
  int cohort = -1;
  std::vector<Gpus> holds, leaving;  // by SKU
  std::vector<double> used_s;        // by SKU
  std::vector<bool> has_used;
  std::set<const Attempt*> attempts;  // attempts that hold quota
  double at = 0.0;
  long long changed = 0, grown = 0;
  Gpus waits = 0;
  bool known = false;

  template <class T>
  static T get(const std::vector<T>& of, int sku) {
    return sku < static_cast<int>(of.size()) ? of[sku] : T();
  }
  template <class T>
  static T& slot(std::vector<T>& of, int sku) {
    if (sku >= static_cast<int>(of.size())) of.resize(sku + 1);
    return of[sku];
  }
};

// A limit of a team: its quota and borrowing limit, or the quota of its cohort.
struct Limit {
  bool of_cohort;
  int number;
  bool operator<(const Limit& other) const { return std::tie(of_cohort, number) < std::tie(other.of_cohort, other.number); }
};

struct Limits {
  Limit each[2];
  int count = 0;
  const Limit* begin() const { return each; }
  const Limit* end() const { return each + count; }
};

struct Deficit {
  std::vector<int> teams;
  Gpus gpus;
  bool has(int team) const { return std::find(teams.begin(), teams.end(), team) != teams.end(); }
};

class Teams {
 public:
  explicit Teams(const Pools& pools) : pools_(pools) {}

  Names names;
  std::vector<Account> accounts;
  std::vector<int> order;  // accounts in the order in which they were added
  long long changes = 0, version = 0;
  double half_life_s = 1.0;

  int number(const std::string& name) {
    int found = names.number(name);
    if (found >= static_cast<int>(accounts.size())) accounts.resize(found + 1);
    return found;
  }

  Account& operator[](int team) {
    Account& account = accounts[team];
    if (!account.known) {
      account.known = true;
      order.push_back(team);
    }
    return account;
  }

  void set_team(const std::string& name, TeamFacts team) {
    Account& account = (*this)[number(name)];
    if (!account.team.has_rules_of(team)) ++version;
    count_cohort(account, -1);
    account.team = std::move(team);
    account.cohort = account.team.cohort.empty() ? -1 : cohort(account.team.cohort);
    count_cohort(account, 1);
    bool has_any = std::find(account.has_used.begin(), account.has_used.end(), true) != account.has_used.end();
    if (account.team.used_at > account.at || !has_any) {
      account.used_s.clear();
      account.has_used.clear();
      for (auto [sku, amount] : account.team.used_s) use(account, sku) = amount;
      account.at = std::max(account.team.used_at, account.at);
    }
  }

  void hold(const Attempt& attempt, int sku, double now, int sign) {
    Account& account = (*this)[attempt.team];
    settle(account, now);
    account.changed = ++changes;
    if (sign > 0 && !attempt.stopping) account.grown = changes;
    Account::slot(account.holds, sku) += sign * attempt.gpus;
    if (attempt.stopping) Account::slot(account.leaving, sku) += sign * attempt.gpus;
    if (sign > 0) {
      account.attempts.insert(&attempt);
    } else {
      account.attempts.erase(&attempt);
    }
    if (account.cohort >= 0) Account::slot(cohorts_[account.cohort].holds, sku) += sign * attempt.gpus;
  }

  double may_take(int team, int sku) {
    if (!(*this)[team].team.closed.empty()) return 0.0;
    double least = kInfinity;
    for (auto& limit : limits(team)) least = std::min(least, left(limit, sku));
    return least;
  }

  Limits limits(int team) {
    Limits found;
    const Account& account = (*this)[team];
    if (!account.team.has_quota) return found;
    if (!account.team.borrowing.empty()) found.each[found.count++] = {false, team};
    if (account.cohort >= 0) found.each[found.count++] = {true, account.cohort};
    return found;
  }

  double left(const Limit& limit, int sku) {
    if (limit.of_cohort) {
      const Cohort& cohort = cohorts_[limit.number];
      return static_cast<double>(Account::get(cohort.quota, sku) - Account::get(cohort.holds, sku));
    }
    const Account& account = accounts[limit.number];
    const Gpus* borrows = account.team.borrows(sku);
    if (!borrows) return kInfinity;
    return static_cast<double>(account.team.quota_of(sku) + *borrows - Account::get(account.holds, sku));
  }

  // GPUs under a limit of attempts that are expected to end by `until`.
  Gpus gives_back(const Limit& limit, int sku, double until, double now) {
    Gpus found = 0;
    for (auto& [end, gpus] : ends(limit, sku)) {
      if (end > until) break;
      if (expected_end(end, now) <= until) found += gpus;
    }
    return found;
  }

  // When a limit is expected to allow `gpus` more GPUs, after attempts have ended. False: too few GPUs become free.
  bool limit_start(const Limit& limit, int sku, Gpus gpus, double now, double& start) {
    start = now;
    double left = this->left(limit, sku);
    if (left >= static_cast<double>(gpus)) return true;
    // Attempts that have overrun their predictions are expected to end later, the first of them last.
    auto& sorted = ends(limit, sku);
    auto is_later = [](double at, const std::pair<double, Gpus>& each) { return at < each.first; };
    size_t next = std::upper_bound(sorted.begin(), sorted.end(), now, is_later) - sorted.begin(), overrun = next;
    while (left < static_cast<double>(gpus) && (overrun > 0 || next < sorted.size())) {
      bool takes_overrun = overrun > 0 && (next == sorted.size() || expected_end(sorted[overrun - 1].first, now) <= sorted[next].first);
      auto& [end, given] = takes_overrun ? sorted[--overrun] : sorted[next++];
      left += static_cast<double>(given);
      start = std::max(start, expected_end(end, now));
    }
    return left >= static_cast<double>(gpus);
  }

  // GPUs to reclaim per borrowing group of teams so that a team can start `gpus` more GPUs of a SKU.
  std::vector<Deficit> deficits(int team, int sku, Gpus gpus) {
    std::vector<Deficit> found;
    Account& account = (*this)[team];
    if (!account.team.has_quota) return found;
    if (const Gpus* borrows = account.team.borrows(sku)) {
      Gpus missing = gpus + Account::get(account.holds, sku) - Account::get(account.leaving, sku) - account.team.quota_of(sku) - *borrows;
      if (missing > 0) found.push_back({{team}, missing});
    }
    if (account.cohort >= 0) {
      const Cohort& cohort = cohorts_[account.cohort];
      Gpus leaving = 0;
      for (int other : cohort.teams) leaving += Account::get(accounts[other].leaving, sku);
      Gpus missing = gpus + Account::get(cohort.holds, sku) - leaving - Account::get(cohort.quota, sku);
      if (missing > 0) found.push_back({{cohort.teams.begin(), cohort.teams.end()}, missing});
    }
    return found;
  }

  bool lacks(int team, int sku, Gpus gpus) { return !deficits(team, sku, gpus).empty(); }

  bool gets_back(int team, int sku) {
    Account& account = (*this)[team];
    if (!account.team.has_quota) return false;
    if (Account::get(account.leaving, sku) > 0) return true;
    if (account.cohort < 0) return false;
    for (int other : cohorts_[account.cohort].teams) {
      if (Account::get(accounts[other].leaving, sku) > 0) return true;
    }
    return false;
  }

  double most(int team, int sku) {
    const Account& account = (*this)[team];
    if (!account.team.has_quota) return kInfinity;
    const Gpus* borrows = account.team.borrows(sku);
    double own = borrows ? static_cast<double>(account.team.quota_of(sku) + *borrows) : kInfinity;
    return account.cohort >= 0 ? std::min(own, static_cast<double>(Account::get(cohorts_[account.cohort].quota, sku))) : own;
  }

  bool within_quota(int team, int sku, Gpus gpus) {
    const Account& account = (*this)[team];
    return account.team.has_quota && Account::get(account.holds, sku) + gpus <= account.team.quota_of(sku);
  }

  Gpus borrowed(int team, int sku) {
    const Account& account = (*this)[team];
    return std::max<Gpus>(0, Account::get(account.holds, sku) - Account::get(account.leaving, sku) - account.team.quota_of(sku));
  }

  bool lends(int owner, int other) { return !(*this)[other].team.has_quota || (*this)[owner].cohort == (*this)[other].cohort; }

  long long changed_at(int team) {
    const Account& account = (*this)[team];
    if (account.cohort < 0) return account.changed;
    long long found = 0;
    for (int other : cohorts_[account.cohort].teams) found = std::max(found, accounts[other].changed);
    return found;
  }

  std::vector<bool> grown_since(long long change) {
    std::vector<bool> found(accounts.size());
    for (size_t team = 0; team < accounts.size(); ++team) found[team] = accounts[team].grown > change;
    return found;
  }

  // Usage of each team with attempts or asks, in fair shares of its dominant resource; 0 for other teams.
  std::vector<double> shares(const std::vector<std::pair<int, Gpus>>& capacity, double now) {
    std::vector<double> found(accounts.size(), 0.0);
    double weights = 0.0;
    auto is_present = [](const Account& account) {
      return account.waits || std::any_of(account.holds.begin(), account.holds.end(), [](Gpus gpus) { return gpus != 0; });
    };
    for (int team : order) {
      if (is_present(accounts[team])) weights += accounts[team].team.weight;
    }
    if (weights == 0.0) weights = 1.0;
    double whole_s = half_life_s / std::log(2.0);
    for (int team : order) {
      Account& account = accounts[team];
      if (!is_present(account)) continue;
      settle(account, now);
      bool has_quota = account.team.has_quota;
      double fair = account.team.weight / weights, share = 0.0;
      for (auto [sku, gpus] : capacity) {
        if (!gpus || sku >= static_cast<int>(account.used_s.size()) || !account.has_used[sku]) continue;
        double entitled = has_quota ? static_cast<double>(std::max<Gpus>(1, account.team.quota_of(sku))) : gpus * fair;
        if (entitled != 0.0) share = std::max(share, account.used_s[sku] / (whole_s * entitled));
      }
      found[team] = has_quota ? std::max(0.0, share - 1.0) : share;
    }
    return found;
  }

  // Bring decayed usage of all teams up to now.
  void settle_all(double now) {
    for (int team : order) settle(accounts[team], now);
  }

  std::vector<std::pair<int, double>> usage(int team) const {
    const Account& account = accounts[team];
    std::vector<std::pair<int, double>> found;
    for (size_t sku = 0; sku < account.used_s.size(); ++sku) {
      if (account.has_used[sku]) found.emplace_back(static_cast<int>(sku), account.used_s[sku]);
    }
    return found;
  }

 private:
  const Pools& pools_;
  struct Cohort {
    std::set<int> teams;
    std::vector<Gpus> quota, holds;
  };
  struct Ends {
    long long changes = -1;
    std::vector<std::pair<double, Gpus>> sorted;
  };
  Names cohort_names_;
  std::vector<Cohort> cohorts_;
  std::map<std::tuple<bool, int, int>, Ends> ends_;

  int cohort(const std::string& name) {
    int found = cohort_names_.number(name);
    if (found >= static_cast<int>(cohorts_.size())) cohorts_.resize(found + 1);
    return found;
  }

  static double& use(Account& account, int sku) {
    if (sku >= static_cast<int>(account.used_s.size())) {
      account.used_s.resize(sku + 1, 0.0);
      account.has_used.resize(sku + 1, false);
    }
    account.has_used[sku] = true;
    return account.used_s[sku];
  }

  // Bring decayed usage up to now, exactly.
  void settle(Account& account, double now) {
    double passed = now - account.at;
    if (passed <= 0) return;
    double kept = power(0.5, passed / half_life_s);
    double whole_s = half_life_s / std::log(2.0);
    size_t skus = std::max(account.used_s.size(), account.holds.size());
    for (size_t sku = 0; sku < skus; ++sku) {
      Gpus holds = Account::get(account.holds, static_cast<int>(sku));
      if (!holds && !(sku < account.has_used.size() && account.has_used[sku])) continue;
      double& used = use(account, static_cast<int>(sku));
      used = used * kept + static_cast<double>(holds) * whole_s * (1 - kept);
    }
    account.at = now;
  }

  const std::vector<std::pair<double, Gpus>>& ends(const Limit& limit, int sku) {
    Ends& known = ends_[{limit.of_cohort, limit.number, sku}];
    if (known.changes != changes) {
      known.changes = changes;
      known.sorted.clear();
      auto take = [&](const Account& account) {
        for (const Attempt* each : account.attempts) {
          if (pools_.all[each->pool]->sku == sku) known.sorted.emplace_back(each->ends, each->gpus);
        }
      };
      if (limit.of_cohort) {
        for (int team : cohorts_[limit.number].teams) take(accounts[team]);
      } else {
        take(accounts[limit.number]);
      }
      std::sort(known.sorted.begin(), known.sorted.end());
    }
    return known.sorted;
  }

  void count_cohort(const Account& account, int sign) {
    if (account.cohort < 0) return;
    Cohort& cohort = cohorts_[account.cohort];
    int team = static_cast<int>(&account - accounts.data());
    if (sign > 0) {
      cohort.teams.insert(team);
    } else {
      cohort.teams.erase(team);
    }
    if (account.team.has_quota) {
      for (auto [sku, quota] : account.team.quota) Account::slot(cohort.quota, sku) += sign * quota;
    }
    for (size_t sku = 0; sku < account.holds.size(); ++sku) Account::slot(cohort.holds, static_cast<int>(sku)) += sign * account.holds[sku];
  }
};

}  // namespace tuneyard
