        if (K % 4 == 0) {
            // Every row of a starts on a 16-byte boundary: 4 elements per load.
            for (int i = thread; i < TILE * TILE_K / 4; i += THREADS) {
                int r = i / (TILE_K / 4);
                int k = i % (TILE_K / 4) * 4;
                float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (row0 + r < M && k0 + k < K) {
                    v = *reinterpret_cast<const float4*>(&a[(long long)(row0 + r) * K + k0 + k]);
                }
                tile_a[r][k] = v.x;
                tile_a[r][k + 1] = v.y;
                tile_a[r][k + 2] = v.z;
                tile_a[r][k + 3] = v.w;
            }
        } else {
            for (int i = thread; i < TILE * TILE_K; i += THREADS) {
                int row = row0 + i / TILE_K;
                int k = k0 + i % TILE_K;
                tile_a[i / TILE_K][i % TILE_K] = row < M && k < K ? a[(long long)row * K + k] : 0.0f;
            }
        }
