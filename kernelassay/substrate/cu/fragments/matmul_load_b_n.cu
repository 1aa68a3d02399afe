        for (int i = thread; i < TILE * TILE_K; i += THREADS) {
            int k = k0 + i / TILE;
            int col = col0 + i % TILE;
            tile_b[i / TILE][i % TILE] = k < K && col < N ? b[(long long)k * N + col] : 0.0f;
        }
