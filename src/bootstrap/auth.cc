#include "bootstrap/auth.h"

#include <sodium.h>

#include <cassert>

namespace ropewalk::bootstrap {
namespace {

static_assert(crypto_auth_KEYBYTES == std::tuple_size_v<Key>);
static_assert(crypto_auth_BYTES == std::tuple_size_v<Mac>);

constexpr std::string_view kPublicSecret = "ropewalk: no job key was set";

const unsigned char* bytes_of(const std::byte* p) {
  return reinterpret_cast<const unsigned char*>(p);
}
unsigned char* bytes_of(std::byte* p) {
  return reinterpret_cast<unsigned char*>(p);
}

/// label, Hello, and the Challenge without its MAC.
Bytes transcript(std::string_view label, const Hello& hello, Challenge challenge) {
  challenge.mac = {};
  const auto first = encode(hello);
  const auto second = encode(challenge);
  const auto name = std::as_bytes(std::span(label));
  Bytes all(name.begin(), name.end());
  all.insert(all.end(), first.begin(), first.end());
  all.insert(all.end(), second.begin(), second.end());
  return all;
}

using SecretBytes = std::array<unsigned char, 32>;

std::string to_hex(const SecretBytes& bytes) {
  std::array<char, 2 * std::tuple_size_v<SecretBytes> + 1> hex;
  return sodium_bin2hex(hex.data(), hex.size(), bytes.data(), bytes.size());
}

constexpr std::string_view kAcceptorLabel = "ropewalk acceptor";
constexpr std::string_view kDialerLabel = "ropewalk dialer  ";

/// sodium_init() returns 1 when an earlier call has succeeded.
[[maybe_unused]] bool cryptography_has_started() {
  return sodium_init() == 1;
}

Mac mac_of(const Key& key, const Bytes& message) {
  Mac mac;
  crypto_auth(bytes_of(mac.data()), bytes_of(message.data()), message.size(), key.data());
  return mac;
}

bool mac_matches(const Key& key, const Bytes& message, const Mac& mac) {
  return crypto_auth_verify(bytes_of(mac.data()), bytes_of(message.data()), message.size(),
                            key.data()) == 0;
}

}  // namespace

void start_cryptography() {
  if (sodium_init() < 0)
    throw Error(ErrorCode::system, "bootstrap", "libsodium cannot start",
                "is /dev/urandom readable?");
}

Key job_key(std::string_view secret) {
  assert(cryptography_has_started());
  if (secret.empty()) secret = kPublicSecret;
  Key key;
  crypto_generichash(key.data(), key.size(), reinterpret_cast<const unsigned char*>(secret.data()),
                     secret.size(), nullptr, 0);
  return key;
}

Key session_key(const Key& job, const WorldId& world) {
  assert(cryptography_has_started());
  Key key;
  crypto_generichash(key.data(), key.size(), bytes_of(world.data()), world.size(), job.data(),
                     job.size());
  return key;
}

Nonce random_nonce() {
  assert(cryptography_has_started());
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

std::string random_secret() {
  assert(cryptography_has_started());
  SecretBytes bytes;
  randombytes_buf(bytes.data(), bytes.size());
  return to_hex(bytes);
}

std::string part_secret(std::string_view whole, std::string_view nonce) {
  const Key key = job_key(whole);
  const std::string message = "ropewalk part " + std::string(nonce);
  SecretBytes bytes;
  crypto_generichash(bytes.data(), bytes.size(),
                     reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                     key.data(), key.size());
  return to_hex(bytes);
}

WorldId random_world_id() {
  assert(cryptography_has_started());
  WorldId world;
  randombytes_buf(world.data(), world.size());
  return world;
}

Challenge challenge_for(const Key& key, const Hello& hello) {
  Challenge challenge;
  challenge.nonce = random_nonce();
  challenge.mac = mac_of(key, transcript(kAcceptorLabel, hello, challenge));
  return challenge;
}

bool verify(const Key& key, const Hello& hello, const Challenge& challenge) {
  return mac_matches(key, transcript(kAcceptorLabel, hello, challenge), challenge.mac);
}

Mac proof_for(const Key& key, const Hello& hello, const Challenge& challenge) {
  return mac_of(key, transcript(kDialerLabel, hello, challenge));
}

bool verify(const Key& key, const Hello& hello, const Challenge& challenge, const Mac& proof) {
  return mac_matches(key, transcript(kDialerLabel, hello, challenge), proof);
}

}  // namespace ropewalk::bootstrap
