#include "varying.h"

#include <cstdint>
#include <cstring>
#include <list>
#include <span>
#include <utility>
#include <vector>

#include "arguments.h"

namespace ropewalk::mpi {
namespace {

constexpr size_t kInlineBytesMax = 120;

struct Head {
  uint64_t bytes = 0;
  std::byte data[kInlineBytesMax];

  bool is_all() const { return bytes <= kInlineBytesMax; }
};
static_assert(sizeof(Head) == 128);

/// No call of an MPI program is on elements of this type: so what only looks like it is found.
std::span<bfloat16> as_elements(std::span<Head> heads) {
  return {reinterpret_cast<bfloat16*>(heads.data()), heads.size_bytes() / sizeof(bfloat16)};
}

std::span<uint8_t> as_bytes(std::byte* data, size_t bytes) {
  return {reinterpret_cast<uint8_t*>(data), bytes};
}

/// What goes between this rank and others: the long parts, after the heads.
class Parts {
 public:
  void send(int to, Bytes part, Head& head) {
    head.bytes = part.size();
    const std::byte* const data = part.read();
    if (head.is_all()) {
      std::memcpy(head.data, data, part.size());
    } else {
      messages_.push_back(Call::send(as_bytes(const_cast<std::byte*>(data), part.size()), to));
      kept_.push_back(std::move(part));
    }
  }

  void receive(int from, const Head& head, Bytes room) {
    const bool fits = room.has_room_for(head.bytes);
    is_truncated_ |= !fits;
    if (fits) room.shorten(head.bytes);
    if (!head.is_all()) {
      if (!fits) unwanted_.push_back(get_packing_memory(head.bytes));
      std::byte* const to = fits ? room.write() : unwanted_.back().get();
      messages_.push_back(Call::recv(as_bytes(to, head.bytes), from));
      if (fits) received_.push_back(std::move(room));
    } else if (fits) {
      std::memcpy(room.write(), head.data, head.bytes);
      room.finish();
    }
  }

  /// The root's own.
  void copy(Bytes from, Bytes room) {
    is_truncated_ |= !room.has_room_for(from.size());
    if (!room.has_room_for(from.size())) return;
    room.shorten(from.size());
    const std::byte* const data = from.read();
    std::memmove(room.write(), data, from.size());
    room.finish();
  }

  void run(Channel& channel) {
    for (Call& message : messages_) channel.run(std::move(message));
    for (Bytes& part : received_) part.finish();
    require(!is_truncated_, "a part is longer than the room for it", MPI_ERR_TRUNCATE);
  }

 private:
  std::vector<Call> messages_;
  std::list<Bytes> kept_, received_;
  std::list<PackingMemory> unwanted_;
  bool is_truncated_ = false;
};

/// All ranks' on the root, by rank; else this rank's own.
std::vector<Head> heads_of(const Channel& channel, int root) {
  return std::vector<Head>(channel.rank() == root ? static_cast<size_t>(channel.size()) : 1);
}

template <class Act>
void for_each_other(const Channel& channel, std::span<Head> heads, const Act& act) {
  for (int r = 0; r < channel.size(); ++r)
    if (r != channel.rank()) act(r, heads[static_cast<size_t>(r)]);
}

}  // namespace

void gather_varying(Channel& channel, std::optional<Bytes> own, const PartOf& part_of, int root) {
  std::vector<Head> heads = heads_of(channel, root);
  Parts parts;
  if (channel.rank() != root) {
    parts.send(root, std::move(*own), heads[0]);
    channel.run(Call::gather(as_elements(heads), std::span<bfloat16>(), root));
  } else {
    const std::span<Head> own_head(&heads[static_cast<size_t>(root)], 1);
    channel.run(Call::gather(as_elements(own_head), as_elements(heads), root));
    for_each_other(channel, heads,
                   [&](int r, const Head& head) { parts.receive(r, head, part_of(r)); });
    if (own) parts.copy(std::move(*own), part_of(root));
  }
  parts.run(channel);
}

void scatter_varying(Channel& channel, const PartOf& part_of, std::optional<Bytes> own, int root) {
  std::vector<Head> heads = heads_of(channel, root);
  Parts parts;
  if (channel.rank() != root) {
    channel.run(Call::scatter(std::span<bfloat16>(), as_elements(heads), root));
    parts.receive(root, heads[0], std::move(*own));
  } else {
    for_each_other(channel, heads, [&](int r, Head& head) { parts.send(r, part_of(r), head); });
    const std::span<Head> own_head(&heads[static_cast<size_t>(root)], 1);
    channel.run(Call::scatter(as_elements(heads), as_elements(own_head), root));
    if (own) parts.copy(part_of(root), std::move(*own));
  }
  parts.run(channel);
}

}  // namespace ropewalk::mpi
