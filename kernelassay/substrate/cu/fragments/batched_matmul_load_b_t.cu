            int b_k = k0 + tx;
            int b_col = blockIdx.y * TILE + ty;
            tile_b[buffer][tx][ty] = b_k < K && b_col < N ? b_n[(long long)b_col * K + b_k] : 0.0f;
