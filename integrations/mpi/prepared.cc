#include "prepared.h"

#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

namespace ropewalk::mpi {

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
