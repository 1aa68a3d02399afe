            int a_k = k0 + tx;
            tile_a[buffer][ty][tx] = row < M && a_k < K ? a_n[(long long)row * K + a_k] : 0.0f;
