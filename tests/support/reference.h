// Every collective's right answer, element by element, on data that every type holds exactly.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "ropewalk/communicator.h"

namespace ropewalk::testing {

/// One collective call as the tests describe it; the same on all ranks.
struct Case {
  Collective collective = Collective::all_reduce;
  Algorithm algorithm = Algorithm::automatic;
  DataType type = DataType::float32;
  ReduceKind op = ReduceKind::sum;
  int ranks = 1;
  size_t count = 0;  // as in Call
  int root = 0;
  bool in_place = false;
  bool uneven = false;  // the _v form: rank r's part has count + r elements (rank 1: none)

  std::string text() const;
  /// Elements of rank `rank`'s part.
  size_t part(int rank) const;
  /// all_to_all uneven: elements that `from` sends to `to`.
  size_t pair_part(int from, int to) const;
};

/// One rank's buffers for a case. `allocate` gives zeroed memory that outlives the object.
class RankBuffers {
 public:
  using Allocate = std::function<std::byte*(size_t bytes)>;
  RankBuffers(const Case& c, int rank, const Allocate& allocate);

  /// The call to make. Valid as long as the object.
  const Call& call() const { return call_; }
  /// (Re)writes the input and spoils the output.
  void fill();
  /// Empty when the output is right; else what is wrong where.
  std::string check() const;

 private:
  static constexpr int kAll = -1;  // the reduction over all ranks
  /// Elements of the input of rank `source`, or of kAll.
  struct Part {
    int source = 0;
    size_t first = 0, count = 0;
  };

  double input(int rank, size_t i) const;
  double reduced(size_t i) const;  // over all ranks, at input element i
  /// Inputs, and what is made of them, repeat after so many elements.
  size_t period() const;
  std::vector<std::byte> period_of(int source) const;
  /// This rank's whole output.
  std::vector<Part> expected() const;
  /// The first element at `at` that is not as in `part`; part.count where there is none.
  size_t first_wrong(const std::byte* at, const Part& part) const;

  const Case case_;
  const int rank_;
  Call call_;
  size_t in_count_ = 0, out_count_ = 0;
  std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
};

}  // namespace ropewalk::testing
