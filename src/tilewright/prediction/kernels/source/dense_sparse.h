// What the C++ variants share: matrices come as row-major arrays or as compressed sparse rows.
#pragma once
#include <cstdint>

extern "C" {
struct Csr {
  std::int32_t rows, columns, count;
  const std::int32_t *starts, *indices;
  const double *values;
};
}
