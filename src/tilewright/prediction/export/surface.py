"""C code of our default model, which reads its numbers from a table."""

# Our default model from its inputs: rows of terms and units, constants last, then outputs.
SURFACE_C = """static double tilewright_surface(
    const double *w, const double *u, int inputs, int terms, int hidden) {
    const double *outputs = w + (terms + hidden) * (inputs + 1);
    double z = 0.0, sum = 0.0, bent = 0.0;
    for (int row = terms + hidden - 1; row >= 0; --row) {
        const double *own = w + row * (inputs + 1);
        z = own[inputs];
        for (int i = 0; i < inputs; ++i) z += own[i] * u[i];
        if (row < terms)
            sum += exp(z);
        else
            bent += outputs[row - terms] * (1.0 - 2.0 / (1.0 + exp(2.0 * z)));
    }
    return terms == 1 ? exp(z + bent) : sum * exp(bent);
}
"""
