#include "network/located_json.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "ropewalk/status.h"

namespace ropewalk {
namespace {

/// Where the parser is. It reads one character beyond a number: blanks do not count.
struct TextPosition {
  int line = 1;           // of the next character
  int line_of_token = 1;  // of the last that was no blank
};

/// Characters of a text, which tells where its reader is.
class PlacedCharacters {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  PlacedCharacters(const char* at, TextPosition* place) : at_(at), place_(place) {}
  reference operator*() const { return *at_; }
  PlacedCharacters& operator++() {
    if (*at_ == '\n')
      ++place_->line;
    else if (*at_ != ' ' && *at_ != '\t' && *at_ != '\r')
      place_->line_of_token = place_->line;
    ++at_;
    return *this;
  }
  PlacedCharacters operator++(int) {
    PlacedCharacters before = *this;
    ++*this;
    return before;
  }
  bool operator==(const PlacedCharacters& other) const { return at_ == other.at_; }
  bool operator!=(const PlacedCharacters& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  TextPosition* place_;
};

/// What the library's parser calls; it builds the tree.
class TreeBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TreeBuilder(const TextPosition& place) : place_(place) {}

  bool null() override { return add({}); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(static_cast<double>(value)); }
  bool number_unsigned(uint64_t value) override { return add(static_cast<double>(value)); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(LocatedJson::Kind::object); }
  bool start_array(size_t) override { return open(LocatedJson::Kind::array); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    open_.back().names.push_back(std::move(name));
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) override {
    why = error.what();
    return false;
  }

  std::string why;  // it stopped
  LocatedJson root;

 private:
  static constexpr size_t kDepthMax = 16;
  template <class Value>
  bool add(Value&& value) {
    LocatedJson leaf{place_.line_of_token, std::forward<Value>(value)};
    return put(std::move(leaf));
  }
  bool add(std::monostate) { return put({place_.line_of_token, {}}); }
  bool open(LocatedJson::Kind kind) {
    open_.push_back({place_.line_of_token, {}, kind});
    if (open_.size() <= kDepthMax) return true;
    why = fmt::format("line {}: values are nested too deeply", place_.line_of_token);
    return false;
  }
  bool close() {
    LocatedJson done = std::move(open_.back());
    open_.pop_back();
    return put(std::move(done));
  }
  bool put(LocatedJson value) {
    if (open_.empty())
      root = std::move(value);
    else
      open_.back().items.push_back(std::move(value));
    return true;
  }

  const TextPosition& place_;
  std::vector<LocatedJson> open_;
};

/// The page that has the format.
std::string advice_for(const std::string& operation) {
  const std::string_view page =
      operation == "training step" ? "docs/simulation.md" : "docs/network.md";
  return fmt::format("{} has the format", page);
}

/// "[json.exception.parse_error.101] parse error at line 1, column 2: ...", without the brackets.
std::string without_number(const std::string& what) {
  const size_t end = what.find("] ");
  return end == std::string::npos ? what : what.substr(end + 2);
}

}  // namespace

LocatedJson parse_located_json(std::string_view text, const std::string& operation) {
  TextPosition place;
  TreeBuilder builder(place);
  const PlacedCharacters begin(text.data(), &place), end(text.data() + text.size(), &place);
  if (!nlohmann::json::sax_parse(begin, end, &builder))
    throw Error(ErrorCode::invalid_argument, operation, printable(without_number(builder.why)),
                advice_for(operation));
  return std::move(builder.root);
}

void refuse_json(const std::string& operation, int line, const std::string& field,
                 const std::string& why) {
  throw Error(ErrorCode::invalid_argument, operation,
              fmt::format("line {}: {} {}", line, printable(field), printable(why)),
              advice_for(operation));
}

const LocatedJson::Array& array_of(const LocatedJson& json, const std::string& field,
                                   const std::string& operation) {
  if (json.kind != LocatedJson::Kind::array)
    refuse_json(operation, json.line, field, "is no array");
  return json.items;
}

JsonFields::JsonFields(const LocatedJson& json, std::string where, std::string operation)
    : line_(json.line), where_(std::move(where)), operation_(std::move(operation)) {
  if (json.kind != LocatedJson::Kind::object)
    refuse_json(operation_, line_, where_.empty() ? "the text" : where_, "is no object");
  for (size_t i = 0; i < json.items.size(); ++i)
    if (!fields_.try_emplace(json.names[i], &json.items[i]).second)
      refuse_json(operation_, json.items[i].line, path(json.names[i]), "is there twice");
}

const LocatedJson* JsonFields::take(const std::string& name) {
  const auto found = fields_.find(name);
  if (found == fields_.end()) return nullptr;
  const LocatedJson* value = found->second;
  fields_.erase(found);
  return value;
}

const LocatedJson& JsonFields::require(const std::string& name) {
  const LocatedJson* value = take(name);
  if (value == nullptr) refuse_json(operation_, line_, path(name), "is missing");
  return *value;
}

int JsonFields::line_of(const std::string& name) const {
  const auto found = fields_.find(name);
  return found == fields_.end() ? line_ : found->second->line;
}

std::optional<double> JsonFields::number(const std::string& name, double least, double most) {
  const LocatedJson* json = take(name);
  if (json == nullptr) return {};
  const auto* value = std::get_if<double>(&json->value);
  if (value == nullptr) refuse_json(operation_, json->line, path(name), "is no number");
  if (!(*value >= least && *value <= most))
    refuse_json(operation_, json->line, path(name),
                fmt::format("is {:g}; {:g} to {:g} is possible", *value, least, most));
  return *value;
}

std::string JsonFields::word(const std::string& name) {
  const LocatedJson& json = require(name);
  const auto* value = std::get_if<std::string>(&json.value);
  if (value == nullptr) refuse_json(operation_, json.line, path(name), "is no text");
  return *value;
}

void JsonFields::end() const {
  if (!fields_.empty())
    refuse_json(operation_, fields_.begin()->second->line, path(fields_.begin()->first),
                "is no field that is known");
}

}  // namespace ropewalk
