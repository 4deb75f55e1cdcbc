// Swaps of two pairs, the counterpart of problems/partial/swaps.py: the plan moves `amount` from (i, j) and (k, l) to
// (i, l) and (k, j), which changes the objective by amount·(slope + amount·curvature).

// One plan with its gradient G, and a list of its positive entries. For the entries e = (i, j) and f = (k, l) of the list,
// `slopes` has G_il + G_kj − G_ij − G_kl, and `curvatures` −2 (Dx_ii + Dx_kk − 2 Dx_ik)(Dy_jj + Dy_ll − 2 Dy_jl). Both are
// symmetric, and row e begins with the block of LANES columns that contains the diagonal: `first_column(e)`. Entries of a
// mass up to `min_mass` are rounding errors and not listed.
struct SwapEntries {
    int n, m, count, n_positive;
    Matrix dx, dy, plan, gradient;
    double min_mass;
    Matrix slopes, curvatures, changes;  // between entries
    Matrix lowest_changes;               // (entries, LANES), of the blocks of each row of `changes`
    Matrix transposed;                   // gradientᵀ
    double *masses, *gradients, *diagonals_x, *diagonals_y;  // of the entries and their points
    double *row_factors, *col_factors, *entry_row_factors, *entry_col_factors;
    int *rows, *cols, *places;  // places: (n, m), where an entry of the plan stands in the list, −1 for nowhere

    static int max_count(int n, int m) { return 2 * (n + m); }
    static int first_column(int e) { return e / LANES * LANES; }
    // A swap adds up to two entries before it removes one.
    static int capacity(int n, int m) { return pad(max_count(n, m) + 2); }

    void take(int n_rows, int n_cols, Arena& arena) {
        n = n_rows;
        m = n_cols;
        const int size = capacity(n, m);
        for (Matrix* matrix : {&slopes, &curvatures, &changes}) *matrix = arena.take_matrix(size, size);
        lowest_changes = arena.take_matrix(size, LANES);
        transposed = arena.take_matrix(m, n);
        for (double** values : {&masses, &gradients, &diagonals_x, &diagonals_y, &entry_row_factors, &entry_col_factors})
            *values = arena.take(size);
        row_factors = arena.take(pad(n));
        col_factors = arena.take(pad(m));
        for (int** numbers : {&rows, &cols}) *numbers = reinterpret_cast<int*>(arena.take(size));
        places = reinterpret_cast<int*>(arena.take(pad(n * m)));
    }

    static std::size_t memory(int n, int m) {
        const std::size_t size = capacity(n, m);
        return 3 * size * size + PADDING * size + std::size_t(m) * pad(n) + 8 * size + pad(n) + pad(m) + pad(n * m);
    }

    // Compute the row of entry e in `slopes` and `curvatures`, and with `columns` its column.
    void update_entry(int e, bool columns) {
        const int i = rows[e], j = cols[e], size = count, first = first_column(e);
        const double *dxi = dx.row(i), *dyj = dy.row(j), *gradient_row = gradient.row(i), *gradient_col = transposed.row(j);
        const double own = gradient_row[j], dxii = dxi[i], dyjj = dyj[j];
        const int *of_rows = rows, *of_cols = cols;
        const double *own_gradients = gradients, *of_x = diagonals_x, *of_y = diagonals_y;
        double* __restrict slope = entry_row_factors;
        double* __restrict curvature = entry_col_factors;
        for (int f = columns ? 0 : first; f < size; ++f) {
            const int k = of_rows[f], l = of_cols[f];
            slope[f] = gradient_row[l] + gradient_col[k] - own - own_gradients[f];
            curvature[f] = -2.0 * (dxii + of_x[f] - 2.0 * dxi[k]) * (dyjj + of_y[f] - 2.0 * dyj[l]);
        }
        for (int f = 0; columns && f < std::min(first + LANES, size); ++f) {
            slopes.row(f)[e] = slope[f];
            curvatures.row(f)[e] = curvature[f];
        }
        std::memcpy(slopes.row(e) + first, slope + first, sizeof(double) * (size - first));
        std::memcpy(curvatures.row(e) + first, curvature + first, sizeof(double) * (size - first));
    }

    // Write an entry of the plan to a position of the list.
    void write_entry(int e, int i, int j) {
        rows[e] = i;
        cols[e] = j;
        masses[e] = plan.row(i)[j];
        gradients[e] = gradient.row(i)[j];
        diagonals_x[e] = dx.row(i)[i];
        diagonals_y[e] = dy.row(j)[j];
        places[i * m + j] = e;
    }

    // List the first entries of the plan, at most `max_count`, with their slopes and curvatures.
    void list_entries() {
        transpose(gradient, n, m, transposed);
        count = n_positive = 0;
        for (int i = 0; i < n; ++i)
            for (int j = 0; j < m; ++j) {
                places[i * m + j] = -1;
                if (!(plan.row(i)[j] > min_mass)) continue;
                ++n_positive;
                if (count < max_count(n, m)) write_entry(count++, i, j);
            }
        // Positions behind the last entry have mass 0, and finite numbers, until they are written.
        const int size = capacity(n, m);
        std::fill(masses + count, masses + size, 0.0);
        for (int e = 0; e < size; ++e) {
            const int first = first_column(e);
            std::fill(slopes.row(e) + first, slopes.row(e) + size, 0.0);
            std::fill(curvatures.row(e) + first, curvatures.row(e) + size, 0.0);
            if (e < count) update_entry(e, false);
        }
    }

    // Remove entry e from the list; the last one takes its place.
    void remove(int e) {
        places[rows[e] * m + cols[e]] = -1;
        --n_positive;
        if (e != --count) {
            write_entry(e, rows[count], cols[count]);
            update_entry(e, true);
        }
        masses[count] = 0.0;
    }

    // Bring the list up to date with an entry of the plan that has changed.
    void update_place(int i, int j) {
        const int place = places[i * m + j];
        const double mass = plan.row(i)[j];
        if (place >= 0) {
            if (mass > min_mass)
                masses[place] = mass;
            else
                remove(place);
        } else if (mass > min_mass) {
            ++n_positive;
            write_entry(count++, i, j);
            update_entry(count - 1, true);
        }
    }

    // gradient += 4·amount·(Dx_i − Dx_k)(Dy_j − Dy_l)ᵀ, and all that is computed from it.
    void update_gradient(int i, int j, int k, int l, double amount) {
        const double *dxi = dx.row(i), *dxk = dx.row(k), *dyj = dy.row(j), *dyl = dy.row(l);
        double *of_row = row_factors, *of_col = col_factors, *entry_row = entry_row_factors, *entry_col = entry_col_factors;
        const int size = count, width = pad(m), height = pad(n);
        for (int p = 0; p < height; p += LANES) store(of_row + p, 4.0 * amount * (load(dxi + p) - load(dxk + p)));
        for (int q = 0; q < width; q += LANES) store(of_col + q, load(dyj + q) - load(dyl + q));
        for (int p = 0; p < n; ++p) {
            double* row = gradient.row(p);
            for (int q = 0; q < width; q += LANES) store(row + q, load(row + q) + of_row[p] * load(of_col + q));
        }
        for (int q = 0; q < m; ++q) {
            double* row = transposed.row(q);
            for (int p = 0; p < height; p += LANES) store(row + p, load(row + p) + of_col[q] * load(of_row + p));
        }
        for (int e = 0; e < size; ++e) {
            entry_row[e] = of_row[rows[e]];
            entry_col[e] = of_col[cols[e]];
            gradients[e] += entry_row[e] * entry_col[e];
        }
        // Numbers behind the last entry stay finite: they are multiplied by a mass of 0.
        std::fill(entry_row + size, entry_row + pad(size), 0.0);
        std::fill(entry_col + size, entry_col + pad(size), 0.0);
        for (int e = 0; e < size; ++e) {
            const Vec row = broadcast(entry_row[e]), col = broadcast(entry_col[e]);
            double* slope = slopes.row(e);
            for (int f = first_column(e); f < size; f += LANES)
                store(slope + f, load(slope + f) - (load(entry_row + f) - row) * (load(entry_col + f) - col));
        }
    }

    // Make the swap of entries e and f.
    void swap(int e, int f) {
        const int i = rows[e], j = cols[e], k = rows[f], l = cols[f];
        const double amount = std::min(masses[e], masses[f]);
        plan.row(i)[j] -= amount;
        plan.row(k)[l] -= amount;
        plan.row(i)[l] += amount;
        plan.row(k)[j] += amount;
        update_gradient(i, j, k, l, amount);
        // The list is made anew where it may have to leave entries out.
        if (n_positive + 2 > max_count(n, m)) return list_entries();
        update_place(i, j);
        update_place(k, l);
        update_place(i, l);
        update_place(k, j);
    }

    // Compute the changes of the objective by swaps of all pairs of entries, and return the least.
    double compute_changes() {
        const int size = count;
        const double* of_masses = masses;
        Vec lowest = {};
        for (int e = 0; e < size; ++e) {
            const double *slope = slopes.row(e), *curvature = curvatures.row(e);
            double* change = changes.row(e);
            const Vec mass = broadcast(of_masses[e]);
            Vec lowest_of_row = {};
            for (int f = first_column(e); f < size; f += LANES) {
                const Vec moved = min(load(of_masses + f), mass);
                const Vec value = moved * (load(slope + f) + moved * load(curvature + f));
                lowest_of_row = min(value, lowest_of_row);
                store(change + f, value);
            }
            store(lowest_changes.row(e), lowest_of_row);
            lowest = min(lowest_of_row, lowest);
        }
        return -max_lanes(-lowest);
    }

    // The place of a swap of entries e and f among all swaps: the order in which the entries stand in the plan.
    std::pair<int, int> order(int e, int f) const {
        const int first = rows[e] * m + cols[e], second = rows[f] * m + cols[f];
        return first < second ? std::pair<int, int>(first, second) : std::pair<int, int>(second, first);
    }

    // Find the swap that lowers the objective most; return its change, 0 if none lowers it by more than `min_decrease`.
    // Changes are compared in steps of min_decrease / levels; of equal ones the first in `order` is taken.
    double find_best(double min_decrease, double levels, int& best_e, int& best_f) {
        constexpr int GROUP = 8;  // rows that are passed over together if they have no change as low
        const double step = min_decrease / levels, least = compute_changes();
        if (!(least < -min_decrease)) return 0.0;
        const double lowest_level = std::nearbyint(least / step), limit = least + step;
        double found = 0.0;
        for (int begin = 0; begin < count; begin += GROUP) {
            const int end = std::min(begin + GROUP, count);
            Vec lowest = {};
            for (int e = begin; e < end; ++e) lowest = min(load(lowest_changes.row(e)), lowest);
            if (!(-max_lanes(-lowest) <= limit)) continue;
            for (int e = begin; e < end; ++e) {
                if (!(-max_lanes(-load(lowest_changes.row(e))) <= limit)) continue;
                const double* change = changes.row(e);
                for (int f = e + 1; f < count; ++f) {
                    if (!(change[f] <= limit) || std::nearbyint(change[f] / step) != lowest_level) continue;
                    if (found < 0.0 && !(order(e, f) < order(best_e, best_f))) continue;
                    found = change[f];
                    best_e = e;
                    best_f = f;
                }
            }
        }
        return found < -min_decrease ? found : 0.0;
    }

    // Make the best swap, again and again, at most `max_swaps` times; return the change of the objective, 0 for no swap.
    double descend(double min_decrease, double levels, std::int64_t max_swaps) {
        double total = 0.0;
        int e = 0, f = 0;
        for (std::int64_t k = 0; k < max_swaps; ++k) {
            const double change = find_best(min_decrease, levels, e, f);
            if (!(change < 0.0)) break;
            swap(e, f);
            total += change;
        }
        return total;
    }
};
