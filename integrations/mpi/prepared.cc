#include "prepared.h"

#include <cassert>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

namespace ropewalk::mpi {
namespace {

constexpr uint32_t kRefusedTag = 1;  // others have 0

}  // namespace

void Prepared::send(int to_rank, Bytes part) {
  Bytes& kept = sent_.emplace_back(std::move(part));
  const std::span bytes(reinterpret_cast<const uint8_t*>(kept.read()), kept.size());
  messages_.push_back(Call::send(bytes, to_rank));
}

void Prepared::receive(int from_rank, Bytes part) {
  Bytes& kept = received_.emplace_back(std::move(part));
  const std::span bytes(reinterpret_cast<uint8_t*>(kept.write()), kept.size());
  messages_.push_back(Call::recv(bytes, from_rank));
}

void Prepared::copy(Bytes own_from, Bytes own_to) {
  assert(own_from.size() == own_to.size());
  own_from_ = sent_.emplace_back(std::move(own_from)).read();
  own_to_ = received_.emplace_back(std::move(own_to)).write();
  own_bytes_ = received_.back().size();
}

// No call of an MPI program is on elements of this type.
void Prepared::refuse(const Error& why) {
  refusal_ = why;
  const std::span nothing(&nothing_, 1);
  for (Call& message : messages_) {
    const bool sends = message.collective == Collective::send;
    message = sends ? Call::send(nothing, message.root) : Call::recv(nothing, message.root);
    message.tag = kRefusedTag;
  }
  call = Call::all_reduce(nothing, kMax);
  from.reset();
  to.reset();
  sent_.clear();
  received_.clear();
  own_bytes_ = result_bytes = 0;
}

Work Prepared::start(Communicator& communicator) {
  try {
    return start_checked(communicator);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument || refusal_) throw;
    refuse(error);  // nothing has been sent
  }
  return start_checked(communicator);
}

void Prepared::finish() {
  if (refusal_) throw Error(*refusal_);
  if (own_bytes_ > 0) std::memcpy(own_to_, own_from_, own_bytes_);
  for_each_of(received_, to, [](Bytes& bytes) { bytes.finish(); });
  if (result_bytes > 0) std::memcpy(result_to, result.get(), result_bytes);
}

}  // namespace ropewalk::mpi
