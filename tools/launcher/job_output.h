// What a job prints: the lines of its ranks, and the launcher's messages between them.
#pragma once

#include <unistd.h>

#include <string>
#include <string_view>
#include <vector>

#include "tools/launcher/output.h"

namespace ropewalk::tools {

class JobOutput {
 public:
  /// `command` is how messages name the launcher.
  JobOutput(std::string command, bool prefix) : command_(std::move(command)), prefix_(prefix) {}

  /// Ranks are numbered as they are added; `label` stands before their lines.
  void add_rank(const std::string& label);
  /// `text` empty: the stream has ended, and with it its last line.
  void append(int rank, bool is_err, std::string_view text);
  /// What the rank has begun to print is shown now, before what is said next.
  void end_lines(int rank);
  void say(const std::string& text);
  /// Says once that standard output cannot be written, where somebody could still read it.
  void tell_errors();
  /// Says how much was lost, where something was.
  void tell_losses();

  OutputQueue& out() { return out_; }
  OutputQueue& err() { return err_; }
  const OutputQueue& out() const { return out_; }
  bool empty() const { return out_.empty() && err_.empty(); }
  /// So much is queued that agents should hold theirs back; then, that they may go on.
  bool is_full() const;
  bool has_room() const;
  bool lost() const { return out_.lost_bytes() + err_.lost_bytes() > 0; }
  /// Gives up what its reader does not take now.
  void give_up();

 private:
  struct Lines {
    LinePrefixer out, err;
  };

  std::string command_;
  bool prefix_;
  bool told_error_ = false;
  OutputQueue out_{STDOUT_FILENO}, err_{STDERR_FILENO};
  std::vector<Lines> lines_;
};

}  // namespace ropewalk::tools
