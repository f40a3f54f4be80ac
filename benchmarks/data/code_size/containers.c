/* Sorting and an ordered tree of integers. */
#include <stddef.h>

static void swap(int *a, int *b)
{
    int t = *a;
    *a = *b;
    *b = t;
}

static void insertion(int *a, ptrdiff_t n)
{
    for (ptrdiff_t i = 1; i < n; i++) {
        int held = a[i];
        ptrdiff_t j = i;
        for (; j > 0 && a[j - 1] > held; j--) a[j] = a[j - 1];
        a[j] = held;
    }
}

static void sink(int *a, ptrdiff_t i, ptrdiff_t n)
{
    for (ptrdiff_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && a[c + 1] > a[c]) c++;
        if (a[i] >= a[c]) return;
        swap(a + i, a + c);
    }
}

void heap_sort(int *a, ptrdiff_t n)
{
    for (ptrdiff_t i = n / 2; i-- > 0;) sink(a, i, n);
    while (n-- > 1) {
        swap(a, a + n);
        sink(a, 0, n);
    }
}

static void sort_within(int *a, ptrdiff_t n, int depth)
{
    while (n > 16) {
        if (depth-- == 0) {
            heap_sort(a, n);
            return;
        }
        int *middle = a + n / 2, *last = a + n - 1;
        if (*middle < *a) swap(middle, a);
        if (*last < *a) swap(last, a);
        if (*last < *middle) swap(last, middle);
        int pivot = *middle;
        ptrdiff_t i = 0, j = n - 1;
        while (i <= j) {
            while (a[i] < pivot) i++;
            while (a[j] > pivot) j--;
            if (i <= j) swap(a + i++, a + j--);
        }
        sort_within(a + i, n - i, depth);
        n = j + 1;
    }
    insertion(a, n);
}

void sort(int *a, ptrdiff_t n)
{
    int depth = 0;
    for (ptrdiff_t m = n; m; m >>= 1) depth += 2;
    sort_within(a, n, depth);
}

struct node {
    struct node *side[2];
    int key, height;
};

static int height(const struct node *n) { return n ? n->height : 0; }

static void measure(struct node *n)
{
    int l = height(n->side[0]), r = height(n->side[1]);
    n->height = 1 + (l > r ? l : r);
}

static struct node *turn(struct node *n, int d)
{
    struct node *up = n->side[!d];
    n->side[!d] = up->side[d];
    up->side[d] = n;
    measure(n);
    measure(up);
    return up;
}

struct node *insert(struct node *n, struct node *fresh)
{
    if (!n) return fresh;
    int d = fresh->key > n->key;
    n->side[d] = insert(n->side[d], fresh);
    measure(n);
    if (height(n->side[d]) - height(n->side[!d]) > 1) {
        struct node *child = n->side[d];
        if (height(child->side[!d]) > height(child->side[d])) n->side[d] = turn(child, d);
        return turn(n, !d);
    }
    return n;
}
