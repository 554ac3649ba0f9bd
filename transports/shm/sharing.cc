#include "transports/shm/sharing.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "memory/memfd.h"
#include "ropewalk/status.h"
#include "transports/shm/mailbox_address.h"

namespace ropewalk::shm {
namespace {

bool lies_in(const struct stat& file, uint64_t offset, uint64_t bytes) {
  const auto file_bytes = static_cast<uint64_t>(file.st_size);
  return offset <= file_bytes && bytes <= file_bytes - offset;
}

class MemfdAllocation final : public TransportAllocation {
 public:
  explicit MemfdAllocation(size_t bytes)
      : fd_(create_memfd("shm", "ropewalk-mailbox", round_up(bytes, page_bytes()))),
        mapping_("shm", fd_.get(), 0, round_up(bytes, page_bytes())) {}
  Region region() const override { return {mapping_.base(), mapping_.bytes(), fd_.get(), 0}; }

 private:
  UniqueFd fd_;
  SharedMapping mapping_;
};

class FileMapping final : public Mapping {
 public:
  FileMapping(SharedMapping mapping, std::byte* base) : mapping_(std::move(mapping)), base_(base) {}
  std::byte* base() const override { return base_; }

 private:
  SharedMapping mapping_;
  std::byte* base_;  // inside it
};

}  // namespace

std::unique_ptr<TransportAllocation> MemfdSharing::allocate(size_t bytes) {
  return std::make_unique<MemfdAllocation>(bytes);
}

Share MemfdSharing::share(const Region& region) {
  struct stat file {};
  if (fstat(region.memfd, &file) != 0 || !lies_in(file, region.memfd_offset, region.bytes))
    throw Error(ErrorCode::invalid_argument, "register memory",
                "this memory is not the mapping of a memory file, so local peers cannot map it",
                "allocate it with Communicator::allocate");
  return {{static_cast<uint64_t>(region.memfd), region.memfd_offset, file.st_ino}};
}

std::unique_ptr<Mapping> MemfdSharing::map(const MailboxAddress& owner, const Share& share,
                                           uint64_t bytes) {
  const auto number = static_cast<int>(share.words[0]);
  const uint64_t offset = share.words[1], inode = share.words[2];
  const UniqueFd fd = open_descriptor_of(owner, number, "map memory of");
  struct stat file {};
  if (fstat(fd.get(), &file) != 0 || file.st_ino != inode || !lies_in(file, offset, bytes))
    throw Error(Failure{
        ErrorCode::unavailable, "map",
        fmt::format("file {} of rank {} is not there; the rank has died", number, owner.rank), "",
        -1, owner.rank});
  const auto unit = static_cast<size_t>(file.st_blksize);  // a huge page where it lies on such
  const size_t begin = offset / unit * unit;
  SharedMapping mapping("map", fd.get(), begin,
                        round_up(std::max(offset + bytes - begin, uint64_t{1}), unit));
  std::byte* const base = mapping.base() + (offset - begin);
  return std::make_unique<FileMapping>(std::move(mapping), base);
}

}  // namespace ropewalk::shm
