// The extension module: torch._C knows c10d.Backend; this adds the class below it.
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "backend.h"

namespace py = pybind11;
using ropewalk::pytorch::Backend;

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  py::module_::import("torch._C._distributed_c10d");
  py::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>>(m, "ProcessGroupRopewalk")
      .def(py::init([](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                       double timeout_s, const std::optional<std::vector<int>>& global_ranks,
                       bool awaits_reconfigure) {
             const auto timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1e3));
             return c10::make_intrusive<Backend>(store, rank, size, timeout, global_ranks,
                                                 awaits_reconfigure);
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout_s"),
           py::arg("global_ranks") = py::none(), py::arg("awaits_reconfigure") = false,
           py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("transport", &Backend::transport);
  m.def("abort_all", &ropewalk::pytorch::abort_all, py::arg("reason"),
        py::call_guard<py::gil_scoped_release>());
  m.def(
      "leave_all",
      [](double limit_s) {
        return ropewalk::pytorch::leave_all(
            std::chrono::milliseconds(static_cast<int64_t>(limit_s * 1e3)));
      },
      py::arg("limit_s"), py::call_guard<py::gil_scoped_release>());
}
