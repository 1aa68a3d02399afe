        for (int i = thread; i < TILE * TILE_K; i += THREADS) {
            int row = row0 + i % TILE;
            int k = k0 + i / TILE;
            tile_a[i % TILE][i / TILE] = row < M && k < K ? a[(long long)k * M + row] : 0.0f;
        }
