// Swaps of two pairs, the counterpart of problems/partial/swaps.py: the plan moves `amount` from (i, j) and (k, l) to
// (i, l) and (k, j), which changes the objective by amount·(slope + amount·curvature).

// One plan with its gradient, and a list of its positive entries. Between all entries e = (i, j) and f = (k, l) of the
// list, `slopes` has G_il + G_kj − G_ij − G_kl for the gradient G, and `curvatures` −2 (Dx_ii + Dx_kk − 2 Dx_ik)
// (Dy_jj + Dy_ll − 2 Dy_jl). Both are symmetric. Entries of a mass up to `min_mass` are rounding errors and not listed.
struct SwapEntries {
    int n, m, count, n_positive;
    Matrix dx, dy, plan, gradient;
    double min_mass;
    Matrix slopes, curvatures;
    double *masses, *changes, *row_factors, *col_factors, *entry_row_factors, *entry_col_factors;
    int *rows, *cols, *places;  // places: (n, m), where an entry of the plan stands in the list, −1 for nowhere

    static int max_count(int n, int m) { return 2 * (n + m); }
    // A swap adds up to two entries before it removes one.
    static int capacity(int n, int m) { return pad(max_count(n, m) + 2); }

    void take(int n_rows, int n_cols, Arena& arena) {
        n = n_rows;
        m = n_cols;
        const int size = capacity(n, m);
        slopes = arena.take_matrix(size, size);
        curvatures = arena.take_matrix(size, size);
        for (double** values : {&masses, &changes, &entry_row_factors, &entry_col_factors}) *values = arena.take(size);
        row_factors = arena.take(pad(n));
        col_factors = arena.take(pad(m));
        for (int** numbers : {&rows, &cols}) *numbers = reinterpret_cast<int*>(arena.take(size));
        places = reinterpret_cast<int*>(arena.take(pad(n * m)));
    }

    static std::size_t memory(int n, int m) {
        const std::size_t size = capacity(n, m);
        return 2 * size * size + 6 * size + pad(n) + pad(m) + pad(n * m);
    }

    // Compute the slopes and curvatures between entry e and all others: the rows of e.
    void compute_rows(int e) {
        const int i = rows[e], j = cols[e];
        const double *dxi = dx.row(i), *dyj = dy.row(j), *gradient_row = gradient.row(i);
        const double own = gradient_row[j], dxii = dxi[i], dyjj = dyj[j];
        double *slope_row = slopes.row(e), *curvature_row = curvatures.row(e);
        for (int f = 0; f < count; ++f) {
            const int k = rows[f], l = cols[f];
            const double second_x = dxii + dx.row(k)[k] - 2.0 * dxi[k], second_y = dyjj + dy.row(l)[l] - 2.0 * dyj[l];
            slope_row[f] = gradient_row[l] + gradient.row(k)[j] - own - gradient.row(k)[l];
            curvature_row[f] = -2.0 * second_x * second_y;
        }
    }

    // Compute the rows and columns of entry e.
    void update_entry(int e) {
        compute_rows(e);
        for (int f = 0; f < count; ++f) {
            slopes.row(f)[e] = slopes.row(e)[f];
            curvatures.row(f)[e] = curvatures.row(e)[f];
        }
    }

    // List the first entries of the plan, at most `max_count`, with their slopes and curvatures.
    void list_entries() {
        count = n_positive = 0;
        for (int i = 0; i < n; ++i)
            for (int j = 0; j < m; ++j) {
                const bool is_positive = plan.row(i)[j] > min_mass;
                n_positive += is_positive;
                places[i * m + j] = is_positive && count < max_count(n, m) ? count : -1;
                if (places[i * m + j] < 0) continue;
                rows[count] = i;
                cols[count] = j;
                masses[count++] = plan.row(i)[j];
            }
        std::fill(masses + count, masses + capacity(n, m), 0.0);
        for (int e = 0; e < capacity(n, m); ++e) {  // entries that come later have mass 0 until then
            std::fill(slopes.row(e), slopes.row(e) + slopes.stride, 0.0);
            std::fill(curvatures.row(e), curvatures.row(e) + curvatures.stride, 0.0);
            if (e < count) compute_rows(e);
        }
    }

    // Remove entry e from the list; the last one takes its place.
    void remove(int e) {
        places[rows[e] * m + cols[e]] = -1;
        --count;
        --n_positive;
        if (e != count) {
            rows[e] = rows[count];
            cols[e] = cols[count];
            masses[e] = masses[count];
            places[rows[e] * m + cols[e]] = e;
            update_entry(e);
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
            rows[count] = i;
            cols[count] = j;
            masses[count] = mass;
            places[i * m + j] = count;
            ++n_positive;
            update_entry(count++);
        }
    }

    // gradient += 4·amount·(Dx_i − Dx_k)(Dy_j − Dy_l)ᵀ, and the slopes with it.
    void update_gradient(int i, int j, int k, int l, double amount) {
        const double *dxi = dx.row(i), *dxk = dx.row(k), *dyj = dy.row(j), *dyl = dy.row(l);
        for (int p = 0; p < pad(n); p += LANES) store(row_factors + p, 4.0 * amount * (load(dxi + p) - load(dxk + p)));
        for (int q = 0; q < pad(m); q += LANES) store(col_factors + q, load(dyj + q) - load(dyl + q));
        for (int p = 0; p < n; ++p)
            for (int q = 0; q < pad(m); q += LANES)
                store(gradient.row(p) + q, load(gradient.row(p) + q) + row_factors[p] * load(col_factors + q));
        for (int e = 0; e < count; ++e) {
            entry_row_factors[e] = row_factors[rows[e]];
            entry_col_factors[e] = col_factors[cols[e]];
        }
        for (int e = 0; e < count; ++e) {
            const double row_factor = entry_row_factors[e], col_factor = entry_col_factors[e];
            double* slope_row = slopes.row(e);
            for (int f = 0; f < pad(count); f += LANES)
                store(slope_row + f, load(slope_row + f) - (load(entry_row_factors + f) - row_factor) *
                                                               (load(entry_col_factors + f) - col_factor));
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

    // Write the changes of the objective by swaps of entry e with the entries from `first` on, a multiple of LANES, and
    // return the least.
    double compute_changes(int e, int first) {
        const double *slope_row = slopes.row(e), *curvature_row = curvatures.row(e);
        const Vec mass = broadcast(masses[e]);
        Vec least = {};
        for (int f = first; f < pad(count); f += LANES) {
            const Vec moved = min(load(masses + f), mass);
            const Vec change = moved * (load(slope_row + f) + moved * load(curvature_row + f));
            least = min(change, least);
            store(changes + f, change);
        }
        return -max_lanes(-least);
    }

    // The place of a swap of entries e and f among all swaps: the order in which the entries stand in the plan.
    std::pair<int, int> order(int e, int f) const {
        return std::minmax(rows[e] * m + cols[e], rows[f] * m + cols[f]);
    }

    // Find the swap that lowers the objective most; return its change, 0 if none lowers it by more than `min_decrease`.
    // Changes are compared in steps of min_decrease / levels; of equal ones the first in `order` is taken.
    double find_best(double min_decrease, double levels, int& best_e, int& best_f) {
        double lowest_level = 0.0, lowest_change = 0.0;
        const double step = min_decrease / levels;
        for (int e = 0; e + 1 < count; ++e) {
            const int first = (e + 1) / LANES * LANES;
            if (!(compute_changes(e, first) < lowest_change + step)) continue;
            for (int f = e + 1; f < count; ++f) {
                if (!(changes[f] < lowest_change + step)) continue;
                const double level = std::nearbyint(changes[f] / step);
                if (level > lowest_level || (level == lowest_level && !(lowest_level < 0.0))) continue;
                if (level == lowest_level && !(order(e, f) < order(best_e, best_f))) continue;
                lowest_level = level;
                lowest_change = changes[f];
                best_e = e;
                best_f = f;
            }
        }
        return lowest_change < -min_decrease ? lowest_change : 0.0;
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
