#include "hooks.h"

#include <c10/util/Exception.h>

#include <chrono>
#include <future>
#include <utility>

#include "group.h"

namespace ropewalk::pytorch {
namespace {

constexpr auto kAbortHooksMax = std::chrono::milliseconds(100);

/// What they throw is a warning.
template <class Table, class... Arguments>
void call_all(const Table& hooks, Arguments... arguments) {
  for (const auto& [id, hook] : hooks) try {
      (*hook)(arguments...);
    } catch (const std::exception& error) {
      TORCH_WARN("ropewalk: hook ", id, " failed: ", error.what());
    }
}

}  // namespace

void Hooks::tell_of_abort() const {
  auto hooks = on_abort_.current();
  if (!hooks || hooks->empty()) return;
  auto done = std::make_shared<std::promise<void>>();
  const auto ended = done->get_future();
  run_before_end([hooks = std::move(hooks), done]() mutable {
    call_all(*hooks);
    hooks.reset();
    done->set_value();
  });
  ended.wait_for(kAbortHooksMax);
}

void Hooks::tell_of_completion(uint64_t key) const {
  if (const auto hooks = on_completion_.current()) call_all(*hooks, key);
}

}  // namespace ropewalk::pytorch
