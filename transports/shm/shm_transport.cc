#include "transports/shm/shm_transport.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

namespace ropewalk {
namespace {

constexpr size_t kOpBytesMax = size_t{1} << 30;

uint64_t random_nonce() {
  uint64_t nonce = 0;
  if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce)
    throw Error(ErrorCode::system, "shm", "cannot get random bytes from the kernel");
  return nonce;
}

/// Number of an open pipe; 0 where `fd` is none.
uint64_t inode_of(const UniqueFd& fd) {
  struct stat file {};
  return fstat(fd.get(), &file) == 0 && S_ISFIFO(file.st_mode) ? file.st_ino : 0;
}

class ShmMemory final : public MemoryRegistration {
 public:
  ShmMemory(shm::RegionPublisher& publisher, const Region& region)
      : publisher_(publisher), key_{publisher.publish(region), region.bytes}, base_(region.base) {}
  ShmMemory(const ShmMemory&) = delete;
  ShmMemory& operator=(const ShmMemory&) = delete;
  ~ShmMemory() override { publisher_.withdraw(key_.id); }
  RemoteKey key() const override { return key_; }
  const std::byte* base() const override { return base_; }

 private:
  shm::RegionPublisher& publisher_;
  RemoteKey key_;
  const std::byte* base_;
};

Error bad_argument(std::string reason) {
  return Error(ErrorCode::invalid_argument, "shm", std::move(reason));
}

}  // namespace

ShmTransport::ShmTransport(int rank, int size, std::unique_ptr<shm::Sharing> sharing)
    : rank_(rank),
      size_(size),
      sharing_(std::move(sharing)),
      mailbox_memory_(sharing_->allocate(shm::Mailbox::bytes_for(size))),
      mailbox_(mailbox_memory_->region().base, size),
      publisher_(mailbox_.regions(), *sharing_),
      peers_(size) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) != 0)
    throw_memory_error("shm", "create a pipe", errno);
  doorbell_ = UniqueFd(pipe_ends[0]);
  doorbell_write_end_ = UniqueFd(pipe_ends[1]);
  self_ = {rank,           std::string(name()),
           getpid(),       doorbell_.get(),
           random_nonce(), sharing_->share(mailbox_memory_->region())};

  shm::MailboxHeader& header = mailbox_.header();
  header.magic = shm::kMagic;
  header.version = shm::kLayoutVersion;
  header.rank = rank;
  header.ranks = size;
  header.nonce = self_.nonce;
  header.doorbell_inode = inode_of(doorbell_);
}

std::string ShmTransport::info() const {
  return self_.text();
}

void ShmTransport::set_peers(const std::vector<std::string>& infos_by_rank) {
  if (infos_by_rank.size() != peers_.size())
    throw bad_argument(fmt::format("{} infos for {} ranks", infos_by_rank.size(), size_));
  for (int rank = 0; rank < size_; ++rank) {
    if (infos_by_rank[rank].empty()) continue;
    Peer& peer = peers_[rank];
    assert(peer.state == LinkState::remote);
    peer.info = shm::MailboxAddress::parse(rank, name(), infos_by_rank[rank]);
    peer.state = LinkState::known;
  }
  linked_.reserve(peers_.size());  // poll does not allocate
  for (int rank = (rank_ + 1) % size_; rank != rank_; rank = (rank + 1) % size_)
    if (peers_[rank].state == LinkState::known) return open_mailbox(peers_[rank]);
}

void ShmTransport::open_mailbox(Peer& peer) {
  if (peer.mailbox) return;
  const int rank = peer.info.rank;
  peer.mailbox_memory = sharing_->map(peer.info, peer.info.mailbox, shm::Mailbox::bytes_for(size_));
  const shm::Mailbox mailbox(peer.mailbox_memory->base(), size_);
  const shm::MailboxHeader& header = mailbox.header();
  if (header.magic != shm::kMagic || header.version != shm::kLayoutVersion || header.rank != rank ||
      header.ranks != size_ || header.nonce != peer.info.nonce)
    throw Error(Failure{
        ErrorCode::unavailable, std::string(name()),
        fmt::format("what process {} shares is not the mailbox of rank {}", peer.info.pid, rank),
        "run the same version of Ropewalk on every rank; where ranks live in "
        "different containers set ROPEWALK_TRANSPORT=tcp on every rank",
        rank_, rank});
  peer.mailbox = mailbox;
  peer.out = shm::NoticeSender(mailbox.ring_from(rank_));
  peer.in = shm::NoticeReceiver(mailbox_.ring_from(rank));
  peer.regions = shm::PeerRegions(mailbox.regions(), *sharing_, peer.info);
}

void ShmTransport::open_doorbell(Peer& peer) {
  assert(peer.mailbox && !peer.doorbell);
  if (doorbells_.size() == kDoorbellsMax) {
    doorbells_.front()->doorbell.reset();
    doorbells_.pop_front();
  }
  UniqueFd doorbell =
      shm::open_descriptor_of(peer.info, peer.info.doorbell_fd, "open the doorbell of");
  if (inode_of(doorbell) != peer.mailbox.header().doorbell_inode)
    throw Error(Failure{ErrorCode::peer_lost, "connect", "its doorbell is gone; the rank has died",
                        "", rank_, peer.info.rank});
  peer.doorbell = std::move(doorbell);
  doorbells_.push_back(&peer);
}

Capabilities ShmTransport::capabilities() const {
  return {.name = sharing_->name(),
          .needs_registration = true,
          .op_bytes_max = kOpBytesMax,
          .restarts = true,
          .event_fd = doorbell_.get()};
}

std::unique_ptr<MemoryRegistration> ShmTransport::register_memory(const Region& region) {
  return std::make_unique<ShmMemory>(publisher_, region);
}

void ShmTransport::connect(int rank, std::span<const std::byte> hello) {
  Peer& peer = peers_.at(rank);
  if (peer.state == LinkState::remote)
    throw bad_argument(fmt::format("rank {} is not on this host", rank));
  if (hello.size() > kHelloBytesMax)
    throw bad_argument(
        fmt::format("a hello of {} bytes; at most {}", hello.size(), kHelloBytesMax));
  if (peer.state != LinkState::known) return;

  open_mailbox(peer);
  open_doorbell(peer);
  // Best effort: without it the first notices are slower.
  prefault(&mailbox_.ring_from(rank), sizeof(shm::NoticeRing));
  prefault(&peer.mailbox.ring_from(rank_), sizeof(shm::NoticeRing));
  shm::HelloSlot& slot = peer.mailbox.hello_from(rank_);
  std::copy(hello.begin(), hello.end(), slot.text);
  slot.bytes = static_cast<uint32_t>(hello.size());
  slot.ready.store(1, std::memory_order_seq_cst);
  peer.mailbox.header().hellos.fetch_add(1, std::memory_order_seq_cst);
  connecting_.push_back(rank);
  peer.state = LinkState::connecting;
  ring_if_asleep(peer);
}

void ShmTransport::find_wanted(std::vector<int>& peers) {
  const uint32_t hellos = mailbox_.header().hellos.load(std::memory_order_acquire);
  if (hellos == hellos_seen_ && wanted_.empty()) return;
  hellos_seen_ = hellos;
  wanted_.clear();
  for (int peer = 0; peer < size_; ++peer)
    if (peers_[peer].state == LinkState::known && hello_is_here(peer)) wanted_.push_back(peer);
  peers.insert(peers.end(), wanted_.begin(), wanted_.end());
}

std::optional<std::span<const std::byte>> ShmTransport::hello_of(int peer) const {
  const Peer& p = peers_.at(peer);
  if (p.state != LinkState::linked && p.state != LinkState::broken) return {};
  const shm::HelloSlot& slot = mailbox_.hello_from(peer);
  return std::span<const std::byte>(slot.text, std::min<size_t>(slot.bytes, kHelloBytesMax));
}

Posted ShmTransport::put(const PutRequest& request) {
  assert(request.peer >= 0 && request.peer < size_);
  Peer& peer = peers_[request.peer];
  if (peer.state != LinkState::linked) [[unlikely]]
    return peer.state == LinkState::connecting ? Posted::full : Posted::lost;
  if (peer.out.full()) return Posted::full;
  if (request.bytes > 0) {
    if (request.bytes > kOpBytesMax) [[unlikely]]
      return refuse(peer,
                    fmt::format("{} bytes in one put; at most {}", request.bytes, kOpBytesMax));
    std::byte* target = peer.regions.find(request.key.id, request.offset, request.bytes);
    if (!target) [[unlikely]]
      return refuse(peer, peer.regions.why(), peer.regions.advice());
    std::memcpy(target, request.source, request.bytes);
  }
  peer.out.send(request.notice);
  ring_if_asleep(peer);
  return Posted::done;
}

Posted ShmTransport::refuse(Peer& peer, const std::string& reason, const std::string& advice) {
  peer.state = LinkState::broken;
  peer.why.text = "a put was refused: " + reason;
  peer.why.advice = advice;
  return Posted::lost;
}

std::byte* ShmTransport::map(int rank, RemoteKey key, uint64_t offset, size_t bytes) {
  assert(rank >= 0 && rank < size_);
  Peer& peer = peers_[rank];
  if (!peer.mailbox) return nullptr;
  std::byte* address = peer.regions.find(key.id, offset, bytes);
  if (address == nullptr) [[unlikely]] {
    peer.why = {.text = "its memory cannot be mapped: " + peer.regions.why(),
                .advice = peer.regions.advice()};
  }
  return address;
}

void ShmTransport::unmap_deregistered() {
  for (const int rank : linked_) peers_[rank].regions.unmap_deregistered();
}

void ShmTransport::wake(int rank) {
  assert(rank >= 0 && rank < size_);
  Peer& peer = peers_[rank];
  if (peer.state != LinkState::linked) return;
  // What the caller stored before comes before the look at `asleep`.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  ring_if_asleep(peer);
}

void ShmTransport::ring_if_asleep(Peer& peer) {
  std::atomic<uint32_t>& asleep = peer.mailbox.header().asleep;
  if (asleep.load(std::memory_order_seq_cst) == 0) return;
  if (asleep.exchange(0, std::memory_order_seq_cst) == 0) return;  // another sender rings
  if (!peer.doorbell) try {
      open_doorbell(peer);
    } catch (const Error&) {  // who sends next rings; who sleeps looks again before long
      return asleep.store(1, std::memory_order_seq_cst);
    }
  // The descriptor is open for reading too, so a dead reader raises no SIGPIPE. A full pipe is
  // fine: then it is readable.
  const char byte = 1;
  [[maybe_unused]] const ssize_t written = ::write(peer.doorbell.get(), &byte, 1);
}

size_t ShmTransport::poll(std::span<Completion> into) {
  if (armed_) wake_up();
  if (!connecting_.empty()) finish_links();
  size_t filled = 0;
  // Begins one further each time, so that a busy peer cannot keep the others waiting.
  for (size_t i = 0; i < linked_.size() && filled < into.size(); ++i) {
    if (scan_from_ >= linked_.size()) scan_from_ = 0;
    const int rank = linked_[scan_from_++];
    filled += peers_[rank].in.take(into.subspan(filled), rank);
  }
  return filled;
}

void ShmTransport::finish_links() {
  std::erase_if(connecting_, [this](int rank) {
    if (!hello_is_here(rank)) return false;
    peers_[rank].state = LinkState::linked;
    linked_.push_back(rank);
    return true;
  });
}

bool ShmTransport::hello_is_here(int rank) const {
  return mailbox_.hello_from(rank).ready.load(std::memory_order_seq_cst) != 0;
}

bool ShmTransport::has_arrivals() const {
  const auto notice_is_here = [this](int rank) { return peers_[rank].in.ready(); };
  return std::ranges::any_of(connecting_, [this](int rank) { return hello_is_here(rank); }) ||
         std::ranges::any_of(linked_, notice_is_here);
}

bool ShmTransport::arm() {
  armed_ = true;
  mailbox_.header().asleep.store(1, std::memory_order_seq_cst);
  // Pairs with the fence of a peer's `wake`: the caller looks afterwards for what was stored.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!has_arrivals()) return true;
  // Nobody rang: no byte to clear, so poll need not try. Else it must.
  if (mailbox_.header().asleep.exchange(0, std::memory_order_seq_cst) != 0) armed_ = false;
  return false;
}

void ShmTransport::wake_up() {
  armed_ = false;
  mailbox_.header().asleep.store(0, std::memory_order_seq_cst);
  // A sender that has cleared `asleep` but not yet written leaves a byte for the next sleep, which
  // then ends early once.
  char bytes[64];
  while (::read(doorbell_.get(), bytes, sizeof bytes) == static_cast<ssize_t>(sizeof bytes)) {
  }
}

void ShmTransport::drop(int rank) {
  Peer& peer = peers_.at(rank);
  std::erase(connecting_, rank);
  std::erase(linked_, rank);
  std::erase(doorbells_, &peer);
  LossReason why = std::move(peer.why);
  peer = Peer{};
  peer.state = LinkState::dropped;
  peer.why = std::move(why);
}

LossReason ShmTransport::why_lost(int peer) const {
  return peers_.at(peer).why;
}

}  // namespace ropewalk
