// Memory that UCX shares within a host.
#include "transports/ucx/ucx_sharing.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "memory/registered_memory.h"

namespace ropewalk::ucx {
namespace {

const shm::MailboxAddress kOwner{3, "ucx/shm", getpid(), -1, 0, {}};

ErrorCode refusal_of(UcxSharing& sharing, const Region& region) {
  try {
    sharing.share(region);
  } catch (const Error& error) {
    EXPECT_NE(error.failure().advice.find("allocate"), std::string::npos);
    return error.code();
  }
  return ErrorCode::ok;
}

TEST(UcxSharing, AllocatesWholePagesOfZeroes) {
  UcxSharing sharing;
  for (const size_t bytes : {size_t{1}, size_t{4097}, size_t{3} << 20}) {
    const auto block = sharing.allocate(bytes);
    const Region region = block->region();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(region.base) % page_bytes(), 0u);
    EXPECT_GE(region.bytes, bytes);
    EXPECT_TRUE(std::all_of(region.base, region.base + region.bytes,
                            [](std::byte byte) { return byte == std::byte{}; }));
  }
}

TEST(UcxSharing, MapsAPieceOfABlock) {
  UcxSharing owner, peer;
  const auto block = owner.allocate(10'000);
  Region piece = block->region();
  piece.base += 5001;
  piece.bytes = 100;
  const auto mapping = peer.map(kOwner, owner.share(piece), piece.bytes);
  ASSERT_NE(mapping->base(), piece.base);
  mapping->base()[99] = std::byte{7};
  EXPECT_EQ(piece.base[99], std::byte{7});
}

TEST(UcxSharing, RefusesWhatItHasNotAllocated) {
  UcxSharing sharing, another;
  const RegisteredMemory file(4096);
  const auto block = sharing.allocate(4096), foreign = another.allocate(4096);
  Region beyond = block->region(), before = block->region();
  beyond.bytes += 1;
  before.base -= 1;
  EXPECT_EQ(refusal_of(sharing, block->region()), ErrorCode::ok);
  for (const Region& region : {file.region(), foreign->region(), beyond, before})
    EXPECT_EQ(refusal_of(sharing, region), ErrorCode::invalid_argument);
}

TEST(UcxSharing, SaysThatAPeerMayNotUseTheKind) {
  UcxSharing owner;  // takes sysv first
  const auto block = owner.allocate(4096);
  const shm::Share share = owner.share(block->region());
  setenv("UCX_TLS", "posix,self", 1);
  UcxSharing peer;
  setenv("UCX_TLS", "posix,sysv,self", 1);
  shm::Share unknown = share;
  unknown.words[0] = 99;
  for (const shm::Share& wrong : {share, unknown}) try {
      peer.map(kOwner, wrong, 4096);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unavailable);
      EXPECT_EQ(error.peer(), 3);
      EXPECT_NE(error.failure().reason.find("UCX_TLS"), std::string::npos);
    }
}

TEST(UcxSharing, SurvivesThatTheMemoryHasGone) {
  UcxSharing owner, peer;
  shm::Share share;
  {
    const auto block = owner.allocate(4096);
    share = owner.share(block->region());
  }
  EXPECT_THROW(peer.map(kOwner, share, 4096), Error);
}

TEST(UcxSharing, NeedsAKindOfSharedMemory) {
  setenv("UCX_TLS", "tcp,self", 1);
  EXPECT_THROW(UcxSharing(), Error);
  setenv("UCX_TLS", "posix,sysv,self", 1);
}

}  // namespace
}  // namespace ropewalk::ucx
