// Who may talk to this job: a mutual challenge and response with the job's key, over each new
// connection. Pure functions; acceptor.h and dialer.h move the bytes.
//
//   dialer                       acceptor
//     Hello (nonce d)        ->
//                            <-  Challenge (nonce a, MAC "acceptor" over Hello and nonce a)
//     MAC "dialer" over both ->
//                            <-  Verdict
//
// Each MAC covers both nonces, the purpose, both ranks, the stream and the version, under a label
// that names who made it: nothing can be replayed, reflected, or used for another link. The
// connection is not encrypted.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "bootstrap/wire.h"

namespace ropewalk::bootstrap {

/// Of all of it, on either side.
inline constexpr int64_t kHandshakeTimeoutNs = 5000 * kMillisecond_ns;

using Key = std::array<unsigned char, 32>;

/// Must be called once before the others; cheap when repeated, thread-safe. Throws Error(system).
void start_cryptography();

/// The key for joining, from the job's secret of any length. Empty: a fixed public key, which keeps
/// out accidents but no adversary.
Key job_key(std::string_view secret);
/// The key for links inside one world: ranks of an earlier run with the same secret are strangers.
Key session_key(const Key& job, const WorldId& world);

Nonce random_nonce();
WorldId random_world_id();
/// A job's secret: 32 random bytes in hexadecimal.
std::string random_secret();

/// The secret of a part of a job, from that of the whole and a nonce that anybody may read.
std::string part_secret(std::string_view whole, std::string_view nonce);

/// What the acceptor answers to `hello`.
Challenge challenge_for(const Key& key, const Hello& hello);
/// True when whoever made `challenge` has the key and has read `hello`.
bool verify(const Key& key, const Hello& hello, const Challenge& challenge);
/// The dialer's proof, and its check. Constant time.
Mac proof_for(const Key& key, const Hello& hello, const Challenge& challenge);
bool verify(const Key& key, const Hello& hello, const Challenge& challenge, const Mac& proof);

}  // namespace ropewalk::bootstrap
