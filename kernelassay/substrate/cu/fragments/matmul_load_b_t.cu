        for (int i = thread; i < TILE * TILE_K; i += THREADS) {
            int k = k0 + i % TILE_K;
            int col = col0 + i / TILE_K;
            tile_b[i % TILE_K][i / TILE_K] = k < K && col < N ? b[(long long)col * K + k] : 0.0f;
        }
