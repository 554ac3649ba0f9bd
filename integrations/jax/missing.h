#pragma once

namespace ropewalk::jax {

/// A call that XLA did not make when this was written. Says so, and gives MPI's error.
int is_missing(const char* symbol);

}  // namespace ropewalk::jax
