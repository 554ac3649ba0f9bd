// Who may talk to this job, over each new connection: a key exchange that only those who have the
// job's key can finish. Pure functions; acceptor.h and dialer.h move the bytes.
//
//   dialer                       acceptor
//     Hello (public key d)   ->
//                            <-  Reply (public key a)
//     proof                  ->
//                            <-  Answer (result, MAC)
//
// Proof, MAC and the keys for what follows are derived from the job's key, from X25519 of both
// public keys, which are drawn for this connection alone, and from Hello and Reply as a whole: the
// Noise pattern NNpsk. So nothing can be replayed, reflected, or used for another link; whoever
// learns the job's key later can read nothing of what was recorded; and the acceptor shows nothing
// of the job's key to those who do not have it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "bootstrap/secret.h"
#include "bootstrap/secure_channel.h"
#include "bootstrap/wire.h"

namespace ropewalk::bootstrap {

/// Of all of it, on the acceptor's side; of each answer, on the dialer's.
inline constexpr int64_t kHandshakeTimeoutNs = 5000 * kMillisecond_ns;

/// Must be called once before the others; cheap when repeated, thread-safe. Throws Error(system).
void start_cryptography();

/// The key for joining, from the job's secret of any length. Empty: a fixed public key, which keeps
/// out accidents but no adversary.
Key job_key(std::string_view secret);
/// The key for links inside one world: ranks of an earlier run with the same secret are strangers.
Key session_key(const Key& job, const WorldId& world);

WorldId random_world_id();
LeaveToken random_leave_token();
LeaveCommitment commitment_to(const LeaveToken& token);
/// A job's secret: 32 random bytes in hexadecimal.
std::string random_secret();

/// The secret of a part of a job, from that of the whole and a nonce that anybody may read.
std::string part_secret(std::string_view whole, std::string_view nonce);

/// Where the ranks of a host that join through one of them find it: a name that follows from the
/// job's key. No secret: all users of the host can read it while somebody listens there.
std::string local_registrar_name(const Key& join_key, std::string_view coordinator, int size,
                                 int group);

/// One end's, for one connection.
struct KeyPair {
  PublicKey public_key;
  Key secret_key;
};
/// From those drawn ahead, where there is one. Threads: any.
KeyPair random_key_pair();
/// So that there are `count`: to draw one takes some 50 us of a CPU. Each is given out once.
/// Threads: any.
void draw_key_pairs_ahead(size_t count);

/// With what a rank signs (statements.h).
struct SigningKeys {
  VerifyKey verify_key = {};
  Secret secret_key;  // 64 bytes
};
/// Each job's are others: so nothing that a rank has said in one holds in another.
SigningKeys random_signing_keys();
SigningKeys signing_keys(const Key& seed);
/// Of a message of that type, as it is encoded.
Signature sign(const SigningKeys& keys, const WorldId& world, FrameType type, ByteSpan message);
bool is_signed(const VerifyKey& key, const WorldId& world, FrameType type, ByteSpan message,
               const Signature& signature);

/// What the handshake makes; equal at both ends exactly where they have the same key and have read
/// the same Hello and Reply.
class HandshakeSecrets {
 public:
  /// `own_secret` belongs to the public key in one of the messages, `peer` is the one in the other.
  /// Nothing where `peer` is no key that leads to a secret.
  static std::optional<HandshakeSecrets> derive(const Key& key, const Hello& hello,
                                                const Reply& reply, const Key& own_secret,
                                                const PublicKey& peer);

  /// What the dialer sends.
  const Mac& proof() const { return proof_; }
  bool matches(const Mac& proof) const;  // in constant time
  /// What the acceptor sends.
  Answer answer(HandshakeResult result) const;
  bool is_authentic(const Answer& answer) const;
  /// Of what follows an accepting Answer.
  ConnectionKeys dialers_keys() const { return {from_dialer_, from_acceptor_}; }
  ConnectionKeys acceptors_keys() const { return {from_acceptor_, from_dialer_}; }

 private:
  Mac proof_;
  Key answer_key_, from_dialer_, from_acceptor_;
};

}  // namespace ropewalk::bootstrap
