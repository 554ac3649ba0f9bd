// What tests do with an Agreement in place of AgreementControl, without connections.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <utility>
#include <vector>

#include "bootstrap/agreement.h"
#include "bootstrap/decision_log.h"

namespace ropewalk::bootstrap {

inline void PrintTo(const Decision& decision, std::ostream* out) {
  *out << fmt::format("members {}, ended {}, bits {:x}, call {}, text {}",
                      fmt::join(decision.members, " "), fmt::join(decision.ended, " "),
                      decision.bits, decision.call, decision.text);
}

/// One process's agreements, one after the other, as AgreementControl has them.
class TestedAgreements {
 public:
  void begin(Agreement::Setup setup, int64_t deadline_ns, const std::set<int>& linked) {
    setup.instance = ++begun_;
    decisions_.note_members(setup.members);
    members_ = setup.members;
    deadline_ns_ = deadline_ns;
    is_over_ = false;
    const int64_t now_ns = setup.begun_ns;
    agreement_.emplace(std::move(setup));
    for (const int peer : ended_) agreement_->note_ended(peer);
    for (const int peer : linked) agreement_->note_linked(peer);
    for (const auto& [peer, message] : std::exchange(early_, {}))
      agreement_->hear(peer, message, now_ns);
  }

  void take(int from, const AgreementMessage& message, int64_t now_ns) {
    if (message.instance == begun_ && agreement_)
      agreement_->hear(from, message, now_ns);
    else if (message.instance <= begun_)
      answer_old(from, message);
    else if (message.instance == begun_ + 1)
      early_[from] = message;
  }
  void note_linked(int peer) {
    if (agreement_) agreement_->note_linked(peer);
  }
  void note_unlinked(int peer) {
    if (agreement_) agreement_->note_unlinked(peer);
  }
  void note_ended(int peer) {
    ended_.insert(peer);
    if (agreement_) agreement_->note_ended(peer);
  }

  /// Then what `links_wanted` names is to be dialed, and `take_messages` to be sent.
  void advance(int64_t now_ns) {
    if (!is_over_) agreement_->advance(now_ns);
  }
  std::vector<int> links_wanted() const {
    return is_over_ ? std::vector<int>() : agreement_->links_wanted();
  }
  std::vector<std::pair<int, AgreementMessage>> take_messages() {
    auto messages = std::exchange(answers_, {});
    if (agreement_)
      for (auto& message : agreement_->take_messages()) messages.push_back(std::move(message));
    return messages;
  }
  /// After `take_messages`; the last words may have to be sent. True once.
  bool check_end(int64_t now_ns) {
    if (is_over_) return false;
    if (agreement_->decision()) {
      decisions_.add(begun_, *agreement_->decision());
    } else if (agreement_->is_hopeless() || now_ns >= deadline_ns_) {
      agreement_->give_up();
    } else {
      return false;
    }
    return is_over_ = true;
  }

  bool is_over() const { return is_over_; }
  int64_t wake_at_ns() const { return std::min(agreement_->wake_at_ns(), deadline_ns_); }
  int64_t deadline_ns() const { return deadline_ns_; }
  uint32_t begun() const { return begun_; }
  /// Of the one that was begun last.
  const std::vector<int>& members() const { return members_; }
  const std::optional<Decision>& decision() const {
    static const std::optional<Decision> kNone;
    return agreement_ ? agreement_->decision() : kNone;
  }
  const std::set<int>& ended() const { return ended_; }

 private:
  void answer_old(int from, const AgreementMessage& message) {
    if (const auto answer = decisions_.answer(message)) answers_.emplace_back(from, *answer);
  }

  uint32_t begun_ = 0;
  std::vector<int> members_;
  std::optional<Agreement> agreement_;
  int64_t deadline_ns_ = 0;
  bool is_over_ = true;
  std::set<int> ended_;
  DecisionLog decisions_;
  std::map<int, AgreementMessage> early_;
  std::vector<std::pair<int, AgreementMessage>> answers_;
};

}  // namespace ropewalk::bootstrap
