#include "prepared.h"

#include <cstring>
#include <utility>

namespace ropewalk::mpi {
namespace {

Call message(Collective direction, int peer, const void* in, void* out, size_t bytes) {
  Call call;
  call.collective = direction;
  call.in = in;
  call.out = out;
  call.count = bytes;
  call.type = DataType::uint8;
  call.root = peer;
  return call;
}

}  // namespace

void Prepared::send(int to_rank, Bytes part) {
  Bytes& kept = sent_.emplace_back(std::move(part));
  messages_.push_back(message(Collective::send, to_rank, kept.read(), nullptr, kept.size()));
}

void Prepared::receive(int from_rank, Bytes part) {
  Bytes& kept = received_.emplace_back(std::move(part));
  messages_.push_back(message(Collective::recv, from_rank, nullptr, kept.write(), kept.size()));
}

void Prepared::copy(Bytes own_from, Bytes own_to) {
  own_from_ = sent_.emplace_back(std::move(own_from)).read();
  own_to_ = received_.emplace_back(std::move(own_to)).write();
  own_bytes_ = received_.back().size();
}

void Prepared::finish() {
  if (own_bytes_ > 0) std::memcpy(own_to_, own_from_, own_bytes_);
  for_each_of(received_, to, [](Bytes& bytes) { bytes.finish(); });
  if (result_bytes > 0) std::memcpy(result_to, result.get(), result_bytes);
}

}  // namespace ropewalk::mpi
