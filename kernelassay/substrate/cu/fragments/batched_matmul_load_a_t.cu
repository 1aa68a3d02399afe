            int a_row = blockIdx.x * TILE + tx;
            int a_k = k0 + ty;
            tile_a[buffer][tx][ty] = a_row < M && a_k < K ? a_n[(long long)a_k * M + a_row] : 0.0f;
