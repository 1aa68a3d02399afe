            int b_k = k0 + ty;
            tile_b[buffer][ty][tx] = b_k < K && col < N ? b_n[(long long)b_k * N + col] : 0.0f;
