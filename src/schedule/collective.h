// What each collective takes and gives, in one table.
#pragma once

#include <iterator>

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

inline constexpr CollectiveTraits kTraits[] = {
    /* all_reduce */ {.in = Side::whole, .out = Side::whole, .reduces = true},
    /* reduce_scatter */ {.in = Side::all, .out = Side::own, .reduces = true},
    /* all_gather */ {.in = Side::own, .out = Side::all},
    /* broadcast */ {.in = Side::whole, .out = Side::whole, .reads_on_root = true},
    /* reduce */ {.in = Side::whole, .out = Side::whole, .writes_on_root = true, .reduces = true},
    /* gather */ {.in = Side::own, .out = Side::all, .writes_on_root = true},
    /* scatter */ {.in = Side::all, .out = Side::own, .reads_on_root = true},
    /* all_to_all */ {.in = Side::all, .out = Side::all},
    /* barrier: of a byte of the library's own */ {.reduces = true},
    /* send */ {.in = Side::whole},
    /* recv */ {.out = Side::whole},
};
static_assert(std::size(kTraits) == kCollectives);

/// Of what is no collective, as a peer may name one: nothing.
constexpr CollectiveTraits traits_of(Collective collective) {
  const auto index = static_cast<size_t>(collective);
  return index < std::size(kTraits) ? kTraits[index] : CollectiveTraits();
}

}  // namespace ropewalk
