// What the members of an epoch have decided, as long as one of them may not have heard of it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "bootstrap/agreement.h"

namespace ropewalk::bootstrap {

/// Who is in a decision has begun that agreement, so has heard of the one before: of those that it
/// is in a member can lack the last alone. Of those that follow it needs the first, which tells it
/// that the others have gone on without it. So each member that is left out takes two at most, and
/// all that are in the last decision take that one.
class DecisionLog {
 public:
  /// An agreement of these begins.
  void note_members(const std::vector<int>& members) {
    for (const int member : members) last_with_.try_emplace(member, 0);
  }
  /// The next. Forgets those that nobody can ask for any more.
  void add(uint32_t instance, Decision decision) {
    for (const int member : decision.members) last_with_[member] = instance;
    decisions_.insert_or_assign(instance, std::move(decision));
    std::set<uint32_t> wanted{instance};
    for (const auto& [member, last] : last_with_) wanted.insert({last, last + 1});
    std::erase_if(decisions_, [&](const auto& one) { return !wanted.contains(one.first); });
  }
  /// Null: there was none, or it has been forgotten.
  const Decision* find(uint32_t instance) const {
    const auto found = decisions_.find(instance);
    return found == decisions_.end() ? nullptr : &found->second;
  }
  /// To what another member asks of an agreement that is over here; nothing where it asks nothing.
  std::optional<AgreementMessage> answer(const AgreementMessage& question) const {
    using Kind = AgreementMessage::Kind;
    if (question.kind == Kind::decided || question.kind == Kind::gave_up) return {};
    AgreementMessage answer{.kind = Kind::gave_up, .instance = question.instance};
    if (const Decision* const decided = find(question.instance)) {
      answer.kind = Kind::decided;
      answer.decision = *decided;
    }
    return answer;
  }

 private:
  std::map<int, uint32_t> last_with_;       // by member: the last decision that it is in; 0: none
  std::map<uint32_t, Decision> decisions_;  // by instance
};

}  // namespace ropewalk::bootstrap
