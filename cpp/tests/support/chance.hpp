#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace ringback::twin {

// The value that a chi-squared variable of so many degrees of freedom exceeds once in about 300,000 times
// (Wilson and Hilferty's cube approximation at 4.5 standard deviations): a fixed seed that fails it is a defect.
inline double chi_squared_bound(double degrees) {
    const double a = 2.0 / (9.0 * degrees);
    return degrees * std::pow(1.0 - a + 4.5 * std::sqrt(a), 3.0);
}

// The chi-squared statistic of counts that should all be equal.
inline double chi_squared_uniform(const std::vector<std::int64_t>& counts) {
    double total = 0;
    for (const std::int64_t n : counts) total += static_cast<double>(n);
    const double expected = total / static_cast<double>(counts.size());
    double sum = 0;
    for (const std::int64_t n : counts)
        sum += (static_cast<double>(n) - expected) * (static_cast<double>(n) - expected) / expected;
    return sum;
}

inline bool looks_uniform(const std::vector<std::int64_t>& counts) {
    return chi_squared_uniform(counts) < chi_squared_bound(static_cast<double>(counts.size() - 1));
}

}  // namespace ringback::twin
