// The control tree: rank 0 is the root, every rank has at most 8 children.
#pragma once

namespace ropewalk::bootstrap {

inline constexpr int kTreeArity = 8;

constexpr int tree_parent(int rank) {
  return rank == 0 ? -1 : (rank - 1) / kTreeArity;
}
/// The children of `rank` are [first, end), in a tree of `size` ranks.
constexpr int first_tree_child(int rank, int size) {
  const long first = long{rank} * kTreeArity + 1;
  return first < size ? static_cast<int>(first) : size;
}
constexpr int end_of_tree_children(int rank, int size) {
  const long end = (long{rank} + 1) * kTreeArity + 1;
  return end < size ? static_cast<int>(end) : size;
}
constexpr bool is_tree_child(int child, int rank) {
  return child > 0 && tree_parent(child) == rank;
}
/// True when `rank` is `top` or below it.
constexpr bool in_subtree(int rank, int top) {
  while (rank > top) rank = tree_parent(rank);
  return rank == top;
}

}  // namespace ropewalk::bootstrap
