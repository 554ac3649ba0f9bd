// Transport for ranks on one host, through memory that they share (sharing.h): of itself by files
// without names, so that no daemon is needed and nothing is left behind.
//
// Every rank has a mailbox (mailbox.h) and a doorbell (a pipe, which peers open through
// /proc/PID/fd). A put is a memcpy into the peer's memory, then an entry in the ring of this sender
// in the peer's mailbox. A receiver that wants to sleep sets `asleep` in its mailbox and looks at
// all rings once more; a sender looks at `asleep` after every notice, and in `wake`, and rings only
// then. Stores and loads of both are sequentially consistent, so one of the two always sees the
// other.
//
// Threads: as transport.h says; besides, registrations may begin and end on any thread.
// A dead peer is not noticed here (shared memory outlives it): the control connection does that.
#pragma once

#include <deque>

#include "transports/shm/mailbox.h"

namespace ropewalk {

struct TransportOffer;

class ShmTransport final : public Transport, public MappedMemory {
 public:
  /// Throws Error(exhausted) where descriptors or memory do not suffice.
  ShmTransport(int rank, int size,
               std::unique_ptr<shm::Sharing> sharing = std::make_unique<shm::MemfdSharing>());

  /// What peers need to find this rank, for the bootstrap to hand round: MailboxAddress::text.
  std::string info() const;
  /// Once, before connect. `infos_by_rank` has `size` entries, empty where a rank is not on this
  /// host. Opens the mailbox of the next rank of the host, to see whether the kernel allows it; the
  /// others when they are connected with. Throws Error(protocol) for what is no info, and
  /// Error(unavailable), with the reason and the way round, where the kernel refuses.
  void set_peers(const std::vector<std::string>& infos_by_rank);

  /// `needs_registration` concerns targets: they must be memory that can be shared. A source may be
  /// any memory, and `source_memory` is not looked at.
  Capabilities capabilities() const override;
  MappedMemory* mapped_memory() override { return this; }
  /// Throws Error(invalid_argument) unless `region` lies in its memfd, or block.
  std::unique_ptr<MemoryRegistration> register_memory(const Region& region) override;

  /// Throws Error(invalid_argument) where `peer` is not local, or `hello` is too long;
  /// Error(unavailable), Error(exhausted) or Error(peer_lost) where its mailbox or its doorbell
  /// cannot be opened.
  void connect(int peer, std::span<const std::byte> hello) override;
  std::optional<std::span<const std::byte>> hello_of(int peer) const override;
  void find_wanted(std::vector<int>& peers) override;

  /// Never `posted`: the bytes are copied at once. `lost`, and why_lost says why, after drop and
  /// where [offset, offset + bytes) is not in a registered region of the peer: that is a bug on one
  /// side, and so nothing more is sent to this peer.
  Posted put(const PutRequest& request) override;
  void set_batching(bool) override {}
  bool has_unsent() override { return false; }

  std::unique_ptr<TransportAllocation> allocate(size_t bytes) override {
    return sharing_->shares_files() ? nullptr : sharing_->allocate(bytes);
  }
  std::byte* map(int peer, RemoteKey key, uint64_t offset, size_t bytes) override;
  void unmap_deregistered() override;
  void wake(int peer) override;

  size_t poll(std::span<Completion> into) override;
  bool arm() override;

  void drop(int peer) override;
  void set_stopped(bool) override {}
  LossReason why_lost(int peer) const override;

 private:
  /// Of peers, that are open at a time: descriptors are scarce.
  static constexpr size_t kDoorbellsMax = 128;

  enum class LinkState : uint8_t { remote, known, connecting, linked, broken, dropped };
  struct Peer {
    LinkState state = LinkState::remote;
    shm::MailboxAddress info;
    std::unique_ptr<shm::Mapping> mailbox_memory;
    shm::Mailbox mailbox;  // empty until needed
    UniqueFd doorbell;     // not of all: see kDoorbellsMax
    shm::NoticeSender out;
    shm::NoticeReceiver in;
    shm::PeerRegions regions;
    LossReason why;
  };

  void open_mailbox(Peer& peer);
  void open_doorbell(Peer& peer);
  void ring_if_asleep(Peer& peer);
  void finish_links();
  /// The rank has connected with this one.
  bool hello_is_here(int rank) const;
  bool has_arrivals() const;
  void wake_up();
  Posted refuse(Peer& peer, const std::string& reason, const std::string& advice = {});

  const int rank_;
  const int size_;
  const std::unique_ptr<shm::Sharing> sharing_;
  UniqueFd doorbell_;            // read end
  UniqueFd doorbell_write_end_;  // never written: without it the read end would report hang-up
  const std::unique_ptr<TransportAllocation> mailbox_memory_;
  const shm::Mailbox mailbox_;
  shm::MailboxAddress self_;
  shm::RegionPublisher publisher_;
  std::vector<Peer> peers_;      // by rank
  std::deque<Peer*> doorbells_;  // of these, whose doorbells are open; the oldest first
  std::vector<int> wanted_;      // had connected at the last look, when this rank had not
  uint32_t hellos_seen_ = 0;     // of the mailbox's
  std::vector<int> connecting_;  // peers whose hello is awaited
  std::vector<int> linked_;      // peers whose rings are scanned
  size_t scan_from_ = 0;         // index into linked_ where the next poll begins
  bool armed_ = false;           // arm was called; the doorbell may hold bytes
};

/// For a rank that offers `transport` to its host, before it joins.
TransportOffer offer_shared_memory(std::unique_ptr<ShmTransport> transport);

}  // namespace ropewalk
