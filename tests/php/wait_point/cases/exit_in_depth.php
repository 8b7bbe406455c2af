<?php

array_map(static function (int $one): void {
    foreach ([$one] as $_) {
        try {
            ob_start();
            exit('bye');
        } finally {
            echo 'never';
        }
    }
}, [1]);
