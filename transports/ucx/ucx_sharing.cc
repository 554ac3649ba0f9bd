#include "transports/ucx/ucx_sharing.h"

#include <fmt/format.h>

#include <algorithm>

#include "memory/memfd.h"
#include "ropewalk/status.h"
#include "transports/ucx/wires.h"

namespace ropewalk::ucx {
namespace {

constexpr size_t kDomainWord = 0, kAddressWord = 1, kKeyWord = 2;
constexpr size_t kKeyBytesMax = (shm::Share::kWords - kKeyWord) * sizeof(uint64_t);

class UcxAllocation final : public TransportAllocation {
 public:
  explicit UcxAllocation(const uct_allocated_memory_t& memory) : memory_(memory) {}
  ~UcxAllocation() override { lib().uct_mem_free(&memory_); }
  UcxAllocation(const UcxAllocation&) = delete;
  UcxAllocation& operator=(const UcxAllocation&) = delete;

  Region region() const override {
    Region region;
    region.base = static_cast<std::byte*>(memory_.address);
    region.bytes = memory_.length;
    region.allocation = this;
    return region;
  }
  bool holds(const Region& part) const {
    const auto* base = static_cast<const std::byte*>(memory_.address);
    return part.base >= base && part.base <= base + memory_.length &&
           part.bytes <= static_cast<size_t>(base + memory_.length - part.base);
  }
  const uct_allocated_memory_t& memory() const { return memory_; }

 private:
  const uct_allocated_memory_t memory_;
};

class UcxMapping final : public shm::Mapping {
 public:
  /// Owns `key`.
  UcxMapping(uct_component_h component, const uct_rkey_bundle_t& key)
      : component_(component), key_(key) {}
  ~UcxMapping() override { lib().uct_rkey_release(component_, &key_); }
  UcxMapping(const UcxMapping&) = delete;
  UcxMapping& operator=(const UcxMapping&) = delete;

  ucs_status_t find(uint64_t address_in_owner) {
    void* here = nullptr;
    const ucs_status_t status = lib().uct_rkey_ptr(component_, &key_, address_in_owner, &here);
    base_ = static_cast<std::byte*>(here);
    return status;
  }
  std::byte* base() const override { return base_; }

 private:
  const uct_component_h component_;
  uct_rkey_bundle_t key_;
  std::byte* base_ = nullptr;
};

[[noreturn]] void fail_to_map(const shm::MailboxAddress& owner, const std::string& reason) {
  throw Error(Failure{ErrorCode::unavailable, "ucx",
                      fmt::format("cannot map memory of rank {}: {}", owner.rank, reason),
                      "set UCX_TLS alike on every rank, and run the ranks of a host as one user in "
                      "one container; or set UCX_TLS=^shm, or ROPEWALK_TRANSPORT=tcp",
                      -1, owner.rank});
}

}  // namespace

UcxSharing::UcxSharing() {
  const std::string allowed = Config().wires();
  for (const Domain& domain : find_domains())
    for (Source& source : sources_)
      if (source.name == domain.name && !source.handle && allows_transport(allowed, source.name)) {
        source.component = domain.component;
        source.handle = domain.open();
      }
  if (std::ranges::none_of(sources_, [](const Source& source) { return source.handle != nullptr; }))
    throw Error(ErrorCode::unavailable, "ucx", "UCX has no shared memory here",
                "set UCX_TLS=^shm on every rank; `ropewalk doctor` lists what UCX has here");
}

std::unique_ptr<TransportAllocation> UcxSharing::allocate(size_t bytes) {
  ucs_status_t status = UCS_ERR_NO_MEMORY;
  for (const Source& source : sources_) {
    if (!source.handle) continue;
    uct_md_h domain = source.handle.get();
    uct_mem_alloc_params_t params{};
    params.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS | UCT_MEM_ALLOC_PARAM_FIELD_MDS |
                        UCT_MEM_ALLOC_PARAM_FIELD_NAME;
    params.flags = UCT_MD_MEM_ACCESS_ALL | UCT_MD_MEM_FLAG_HIDE_ERRORS;
    params.mds.mds = &domain;
    params.mds.count = 1;
    params.name = "ropewalk";
    constexpr uct_alloc_method_t kFromDomain = UCT_ALLOC_METHOD_MD;
    uct_allocated_memory_t memory{};
    status = lib().uct_mem_alloc(round_up(bytes, page_bytes()), &kFromDomain, 1, &params, &memory);
    if (status == UCS_OK) return std::make_unique<UcxAllocation>(memory);
  }
  throw Error(ErrorCode::exhausted, "allocate",
              fmt::format("UCX cannot share {} bytes: {}", bytes, text_of(status)),
              "make room in /dev/shm (docker run --shm-size), or raise the limits of System V "
              "segments (sysctl kernel.shmmax, kernel.shmall, kernel.shmmni)");
}

shm::Share UcxSharing::share(const Region& region) {
  const auto* allocation = dynamic_cast<const UcxAllocation*>(region.allocation);
  const auto source = std::ranges::find_if(sources_, [&](const Source& candidate) {
    return allocation != nullptr && candidate.handle.get() == allocation->memory().md &&
           allocation->holds(region);
  });
  if (source == sources_.end())
    throw Error(ErrorCode::invalid_argument, "register memory",
                "this memory is not what UCX allocated, so local peers cannot map it",
                "allocate it with Communicator::allocate");
  uct_md_attr_t about{};
  check(lib().uct_md_query(source->handle.get(), &about), "uct_md_query");
  if (about.rkey_packed_size > kKeyBytesMax)
    throw Error(
        ErrorCode::unavailable, "ucx",
        fmt::format("a packed key of {} bytes; at most {}", about.rkey_packed_size, kKeyBytesMax),
        "shorten UCX_POSIX_DIR");
  shm::Share share;
  share.words[kDomainWord] = static_cast<uint64_t>(source - sources_.begin());
  share.words[kAddressWord] = reinterpret_cast<uintptr_t>(region.base);
  check(lib().uct_md_mkey_pack(source->handle.get(), allocation->memory().memh,
                               &share.words[kKeyWord]),
        "uct_md_mkey_pack");
  return share;
}

std::unique_ptr<shm::Mapping> UcxSharing::map(const shm::MailboxAddress& owner,
                                              const shm::Share& share, uint64_t) {
  const uint64_t number = share.words[kDomainWord];
  const uct_component_h component = number < sources_.size() ? sources_[number].component : nullptr;
  if (component == nullptr) fail_to_map(owner, "it is of a kind that UCX_TLS forbids here");
  uct_rkey_bundle_t key{};
  ucs_status_t status = lib().uct_rkey_unpack(component, &share.words[kKeyWord], &key);
  if (status != UCS_OK) fail_to_map(owner, "uct_rkey_unpack: " + text_of(status));
  auto mapping = std::make_unique<UcxMapping>(component, key);
  status = mapping->find(share.words[kAddressWord]);
  if (status != UCS_OK) fail_to_map(owner, "uct_rkey_ptr: " + text_of(status));
  return mapping;
}

}  // namespace ropewalk::ucx
