#include "engine/group.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "engine/engine.h"

namespace ropewalk {

void Group::add(std::shared_ptr<Operation> operation) {
  add_packed(std::move(operation), nullptr, {});
}

void Group::add_packed(std::shared_ptr<Operation> operation,
                       std::shared_ptr<RegisteredMemory> packed,
                       std::span<const Call* const> calls) {
  assert(operation->group == nullptr && operation->state == Operation::State::idle);
  operation->group = this;
  operation->part = parts_.size();
  Part& part = parts_.emplace_back();
  part.packed = std::move(packed);
  part.operation = std::move(operation);
  size_t begin = 0;
  for (const Call* call : calls) {
    const size_t bytes = call->count * size_of(call->type);
    part.fragments.push_back({static_cast<const std::byte*>(call->in),
                              static_cast<std::byte*>(call->out), part.packed->data() + begin,
                              bytes});
    begin += bytes;
  }
}

void Group::start(Engine& engine) {
  assert(is_finished());
  unfinished_.store(parts_.size(), std::memory_order_relaxed);
  for (const Part& part : parts_) {
    for (const Fragment& piece : part.fragments) std::memcpy(piece.packed, piece.in, piece.bytes);
    engine.start(*part.operation);
  }
}

void Group::unpack(const Operation& operation) const {
  const Part& part = parts_[operation.part];
  assert(part.operation.get() == &operation);
  for (const Fragment& piece : part.fragments) std::memcpy(piece.out, piece.packed, piece.bytes);
}

bool Group::end_part() {
  assert(!is_finished());
  const bool tell =
      unfinished_.load(std::memory_order_relaxed) == 1 && std::exchange(tells_end_, false);
  unfinished_.fetch_sub(1, std::memory_order_release);
  return tell;
}

void Group::tell_end() {
  assert(!is_finished());
  tells_end_ = true;
}

const Operation* Group::unfinished_part() const {
  for (const Part& part : parts_)
    if (part.operation->state.load(std::memory_order_acquire) == Operation::State::running)
      return part.operation.get();
  return nullptr;
}

bool Group::is_valid() const {
  return std::ranges::all_of(parts_, [](const Part& part) {
    return std::ranges::none_of(part.operation->memory.uses,
                                [](const auto& use) { return use.expired(); });
  });
}

Algorithm Group::algorithm() const {
  assert(!parts_.empty());
  return parts_.front().operation->algorithm;
}

}  // namespace ropewalk
