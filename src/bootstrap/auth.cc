#include "bootstrap/auth.h"

#include <fmt/format.h>
#include <sodium.h>
#include <unistd.h>

#include <cassert>
#include <mutex>
#include <optional>
#include <vector>

namespace ropewalk::bootstrap {
namespace {

static_assert(crypto_auth_KEYBYTES == std::tuple_size_v<Key>);
static_assert(crypto_auth_BYTES == std::tuple_size_v<Mac>);
static_assert(crypto_scalarmult_BYTES == std::tuple_size_v<PublicKey>);
static_assert(crypto_scalarmult_SCALARBYTES == std::tuple_size_v<Key>);
static_assert(crypto_sign_PUBLICKEYBYTES == std::tuple_size_v<VerifyKey>);
static_assert(crypto_sign_BYTES == std::tuple_size_v<Signature>);
static_assert(crypto_sign_SEEDBYTES == std::tuple_size_v<Key>);
static_assert(crypto_kdf_KEYBYTES == std::tuple_size_v<Key>);

constexpr std::string_view kPublicSecret = "ropewalk: no job key was set";

/// Bytes as libsodium takes them.
const unsigned char* raw(const auto& range) {
  return reinterpret_cast<const unsigned char*>(range.data());
}

std::string to_hex(const Key& bytes) {
  std::array<char, 2 * std::tuple_size_v<Key> + 1> hex;
  return sodium_bin2hex(hex.data(), hex.size(), bytes.data(), bytes.size());
}

constexpr std::string_view kHandshakeLabel = "ropewalk handshake";

// What is derived from a handshake's master key, in docs/protocol.md's order.
enum class Subkey : uint64_t { proof = 1, answer = 2, from_dialer = 3, from_acceptor = 4 };

/// sodium_init() returns 1 when an earlier call has succeeded.
[[maybe_unused]] bool cryptography_has_started() {
  return sodium_init() == 1;
}

template <class Array>
Array random_array() {
  assert(cryptography_has_started());
  Array array;
  randombytes_buf(array.data(), array.size());
  return array;
}

Key hash(const auto& message, std::span<const unsigned char> key) {
  assert(cryptography_has_started());
  Key digest;
  crypto_generichash(digest.data(), digest.size(), raw(message), message.size(), key.data(),
                     key.size());
  return digest;
}

KeyPair draw_key_pair() {
  KeyPair pair{{}, random_array<Key>()};
  crypto_scalarmult_base(reinterpret_cast<unsigned char*>(pair.public_key.data()),
                         pair.secret_key.data());
  return pair;
}

/// Where another thread is at it, or was when this process was forked, there are none. A forked
/// child has none of its parent's.
class SpareKeyPairs {
 public:
  std::optional<KeyPair> take() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || !is_own() || pairs_.empty()) return {};
    const KeyPair pair = pairs_.back();
    sodium_memzero(&pairs_.back(), sizeof(KeyPair));
    pairs_.pop_back();
    return pair;
  }
  /// False: it was not taken.
  bool add(const KeyPair& pair) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return false;
    if (!is_own()) pairs_.clear();
    process_ = getpid();
    pairs_.reserve(kMost);  // none is left behind elsewhere
    if (pairs_.size() == kMost) return false;
    pairs_.push_back(pair);
    return true;
  }
  size_t count() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    return lock && is_own() ? pairs_.size() : 0;
  }

 private:
  static constexpr size_t kMost = 64;
  bool is_own() const { return process_ == getpid(); }

  std::mutex mutex_;
  pid_t process_ = 0;  // that has drawn them
  std::vector<KeyPair> pairs_;
};
SpareKeyPairs& spare_key_pairs = *new SpareKeyPairs;  // threads may outlive static objects

template <class Bytes32>
Bytes32 derive_subkey(const Key& master, Subkey subkey) {
  Bytes32 derived;
  crypto_kdf_derive_from_key(reinterpret_cast<unsigned char*>(derived.data()), derived.size(),
                             static_cast<uint64_t>(subkey), "ropewalk", master.data());
  return derived;
}

Mac mac_of(const Key& key, Answer answer) {
  answer.mac = {};
  const Bytes message = encode(answer);
  Mac mac;
  crypto_auth(reinterpret_cast<unsigned char*>(mac.data()), raw(message), message.size(),
              key.data());
  return mac;
}

Bytes what_is_signed(const WorldId& world, FrameType type, ByteSpan message) {
  Bytes bytes(world.begin(), world.end());
  bytes.push_back(static_cast<std::byte>(type));
  bytes.insert(bytes.end(), message.begin(), message.end());
  return bytes;
}

bool equal(const Mac& a, const Mac& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

void start_cryptography() {
  if (sodium_init() < 0)
    throw Error(ErrorCode::system, "bootstrap", "libsodium cannot start",
                "is /dev/urandom readable?");
}

Key job_key(std::string_view secret) {
  return hash(secret.empty() ? kPublicSecret : secret, {});
}

Key session_key(const Key& job, const WorldId& world) {
  return hash(world, job);
}

WorldId random_world_id() {
  return random_array<WorldId>();
}

LeaveToken random_leave_token() {
  return random_array<LeaveToken>();
}

LeaveCommitment commitment_to(const LeaveToken& token) {
  LeaveCommitment commitment;
  crypto_generichash(reinterpret_cast<unsigned char*>(commitment.data()), commitment.size(),
                     raw(token), token.size(), nullptr, 0);
  return commitment;
}

std::string random_secret() {
  return to_hex(random_array<Key>());
}

std::string part_secret(std::string_view whole, std::string_view nonce) {
  return to_hex(hash("ropewalk part " + std::string(nonce), job_key(whole)));
}

std::string local_registrar_name(const Key& join_key, std::string_view coordinator, int size,
                                 int group) {
  return "ropewalk-" +
         to_hex(hash(fmt::format("ropewalk local registrar {} {} {}", coordinator, size, group),
                     join_key));
}

KeyPair random_key_pair() {
  const auto spare = spare_key_pairs.take();
  return spare ? *spare : draw_key_pair();
}

void draw_key_pairs_ahead(size_t count) {
  while (spare_key_pairs.count() < count && spare_key_pairs.add(draw_key_pair())) continue;
}

SigningKeys random_signing_keys() {
  return signing_keys(random_array<Key>());
}

SigningKeys signing_keys(const Key& seed) {
  SigningKeys keys;
  std::array<char, crypto_sign_SECRETKEYBYTES> secret;
  crypto_sign_seed_keypair(reinterpret_cast<unsigned char*>(keys.verify_key.data()),
                           reinterpret_cast<unsigned char*>(secret.data()), seed.data());
  keys.secret_key = std::string_view(secret.data(), secret.size());
  sodium_memzero(secret.data(), secret.size());
  return keys;
}

Signature sign(const SigningKeys& keys, const WorldId& world, FrameType type, ByteSpan message) {
  const Bytes signed_bytes = what_is_signed(world, type, message);
  Signature signature;
  crypto_sign_detached(reinterpret_cast<unsigned char*>(signature.data()), nullptr,
                       raw(signed_bytes), signed_bytes.size(), raw(keys.secret_key.text()));
  return signature;
}

bool is_signed(const VerifyKey& key, const WorldId& world, FrameType type, ByteSpan message,
               const Signature& signature) {
  const Bytes signed_bytes = what_is_signed(world, type, message);
  return crypto_sign_verify_detached(raw(signature), raw(signed_bytes), signed_bytes.size(),
                                     raw(key)) == 0;
}

std::optional<HandshakeSecrets> HandshakeSecrets::derive(const Key& key, const Hello& hello,
                                                         const Reply& reply, const Key& own_secret,
                                                         const PublicKey& peer) {
  std::array<std::byte, crypto_scalarmult_BYTES> shared;
  if (crypto_scalarmult(reinterpret_cast<unsigned char*>(shared.data()), own_secret.data(),
                        raw(peer)) != 0)
    return {};
  const auto label = std::as_bytes(std::span(kHandshakeLabel));
  Bytes message(label.begin(), label.end());
  const Bytes first = encode(hello), second = encode(reply);
  for (const ByteSpan part : {ByteSpan(first), ByteSpan(second), ByteSpan(shared)})
    message.insert(message.end(), part.begin(), part.end());
  const Key master = hash(message, key);
  HandshakeSecrets secrets;
  secrets.proof_ = derive_subkey<Mac>(master, Subkey::proof);
  secrets.answer_key_ = derive_subkey<Key>(master, Subkey::answer);
  secrets.from_dialer_ = derive_subkey<Key>(master, Subkey::from_dialer);
  secrets.from_acceptor_ = derive_subkey<Key>(master, Subkey::from_acceptor);
  return secrets;
}

bool HandshakeSecrets::matches(const Mac& proof) const {
  return equal(proof, proof_);
}

Answer HandshakeSecrets::answer(HandshakeResult result) const {
  Answer answer{result, {}};
  answer.mac = mac_of(answer_key_, answer);
  return answer;
}

bool HandshakeSecrets::is_authentic(const Answer& answer) const {
  return equal(answer.mac, mac_of(answer_key_, answer));
}

}  // namespace ropewalk::bootstrap
