// What each collective takes and gives, in one table.
#pragma once

#include "ropewalk/types.h"

namespace ropewalk {

/// What lies on one side of a call on a rank.
enum class Side : uint8_t {
  none,
  whole,  // one vector
  own,    // this rank's part
  all,    // a part for, or of, every rank
};

struct CollectiveTraits {
  Side in = Side::none, out = Side::none;
  bool reads_on_root = false;   // only the root has an input
  bool writes_on_root = false;  // only the root gets an output
  bool reduces = false;

  constexpr bool is_rooted() const { return reads_on_root || writes_on_root; }
  constexpr bool has_parts() const { return in == Side::own || out == Side::own; }
  constexpr bool is_point_to_point() const { return (in == Side::none) != (out == Side::none); }
  constexpr bool has_input(bool is_root) const {
    return in != Side::none && (is_root || !reads_on_root);
  }
  constexpr bool has_output(bool is_root) const {
    return out != Side::none && (is_root || !writes_on_root);
  }
};

constexpr CollectiveTraits traits_of(Collective collective) {
  using enum Side;
  switch (collective) {
    case Collective::all_reduce:
      return {.in = whole, .out = whole, .reduces = true};
    case Collective::reduce_scatter:
      return {.in = all, .out = own, .reduces = true};
    case Collective::all_gather:
      return {.in = own, .out = all};
    case Collective::broadcast:
      return {.in = whole, .out = whole, .reads_on_root = true};
    case Collective::reduce:
      return {.in = whole, .out = whole, .writes_on_root = true, .reduces = true};
    case Collective::gather:
      return {.in = own, .out = all, .writes_on_root = true};
    case Collective::scatter:
      return {.in = all, .out = own, .reads_on_root = true};
    case Collective::all_to_all:
      return {.in = all, .out = all};
    case Collective::barrier:  // of a byte of the library's own
      return {.reduces = true};
    case Collective::send:
      return {.in = whole};
    case Collective::recv:
      return {.out = whole};
  }
  return {};
}

}  // namespace ropewalk
