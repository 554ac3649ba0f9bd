// AES-256-GCM (NIST SP 800-38D): by Intel's IPsec Multi-Buffer library where the build has it,
// which uses the vector instructions of today's x86 processors; else by OpenSSL's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "bootstrap/secure_channel.h"

namespace ropewalk::tcp {

/// One key. Neither call allocates. One thread.
class AesGcm {
 public:
  static constexpr size_t kTagBytes = 16;

  /// Throws Error(system) where there is no memory.
  explicit AesGcm(const Key& key);
  ~AesGcm();
  AesGcm(AesGcm&& other) noexcept;
  AesGcm& operator=(AesGcm&& other) noexcept;
  void set_key(const Key& key);

  /// Writes `plain`, sealed, and the tag behind it to `into`: where `plain` lies, or somewhere that
  /// it does not overlap. `nonce` must be new to the key. `header` is authenticated beside it.
  void seal(uint64_t nonce, std::span<const std::byte> header, std::span<const std::byte> plain,
            std::byte* into);
  /// The reverse, of `sealed` with its tag. False where it is not what was sealed so: then the
  /// bytes at `into` mean nothing.
  [[nodiscard]] bool open(uint64_t nonce, std::span<const std::byte> header,
                          std::span<const std::byte> sealed, std::byte* into);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ropewalk::tcp
