/* C = A B, row-major N x N. A thread computes TX x TY outputs, WX x WY threads a group; STAGED
   keeps the group's rows of A in local memory, DEPTH columns at a time. */
#define DEPTH 16
__kernel __attribute__((reqd_work_group_size(WX, WY, 1)))
void product(__global const float *a, __global const float *b, __global float *c) {
    const int lx = get_local_id(0), ly = get_local_id(1);
    const int x = get_group_id(0) * WX * TX + lx, y = get_group_id(1) * WY * TY + ly;
    float sum[TY][TX];
    for (int i = 0; i < TY; i++)
        for (int j = 0; j < TX; j++) sum[i][j] = 0.0f;
#if STAGED
    __local float rows[WY * TY][DEPTH];
#endif
    for (int k0 = 0; k0 < N; k0 += DEPTH) {
#if STAGED
        for (int t = ly * WX + lx; t < WY * TY * DEPTH; t += WX * WY)
            rows[t / DEPTH][t % DEPTH] =
                a[(get_group_id(1) * WY * TY + t / DEPTH) * N + k0 + t % DEPTH];
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
        for (int k = 0; k < DEPTH; k++)
            for (int i = 0; i < TY; i++) {
#if STAGED
                const float left = rows[ly + i * WY][k];
#else
                const float left = a[(y + i * WY) * N + k0 + k];
#endif
                for (int j = 0; j < TX; j++) sum[i][j] += left * b[(k0 + k) * N + x + j * WX];
            }
#if STAGED
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
    }
    for (int i = 0; i < TY; i++)
        for (int j = 0; j < TX; j++) c[(y + i * WY) * N + x + j * WX] = sum[i][j];
}
