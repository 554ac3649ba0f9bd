# Sourced by the scripts that build.

# choose_compiler NAME: names the compiler to Meson, behind ccache where that is installed. Builds whose
# flags are the same then share what one of them has compiled: that of the tests, that of the Python
# package, and that without RDMA.
choose_compiler() {
  CXX=$1
  ! command -v ccache >/dev/null || CXX="ccache $CXX"
  # A file that is not known yet need not be preprocessed first: the compiler lists what it read.
  export CXX CCACHE_DEPEND=1
  # Debug information makes programs large, and lld links them in a third of the time.
  [[ $1 != clang* ]] || ! command -v ld.lld >/dev/null || export CXX_LD=lld
}
