// JSON whose values know their line, so that errors about a description name line and field.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ropewalk {

struct LocatedJson {
  using Array = std::vector<LocatedJson>;
  enum class Kind { scalar, array, object };

  int line = 1;
  std::variant<std::monostate, bool, double, std::string> value = {};  // of scalars; first: null
  Kind kind = Kind::scalar;
  Array items = {};                     // of arrays and objects
  std::vector<std::string> names = {};  // of objects: by item
};

/// Throws Error(invalid_argument) of `operation` that names line and column.
LocatedJson parse_located_json(std::string_view text, const std::string& operation);

/// "line 3: links[0].rate_mbps is 0; ...".
[[noreturn]] void refuse_json(const std::string& operation, int line, const std::string& field,
                              const std::string& why);
/// Throws that where it is none.
const LocatedJson::Array& array_of(const LocatedJson& json, const std::string& field,
                                   const std::string& operation);

/// The fields of an object, each taken once; what is left then is refused. All throw what
/// `refuse_json` throws. Outlived by the JSON.
class JsonFields {
 public:
  /// `where`: the object's path; empty: the whole text.
  JsonFields(const LocatedJson& json, std::string where, std::string operation);

  std::string path(const std::string& name) const {
    return where_.empty() ? name : where_ + "." + name;
  }
  /// Null where it is not there.
  const LocatedJson* take(const std::string& name);
  const LocatedJson& require(const std::string& name);
  /// Of the field, or of the object where that is not there.
  int line_of(const std::string& name) const;
  std::optional<double> number(const std::string& name, double least, double most);
  std::string word(const std::string& name);
  /// No other field is there.
  void end() const;

 private:
  const int line_;
  const std::string where_, operation_;
  std::map<std::string, const LocatedJson*> fields_;
};

}  // namespace ropewalk
