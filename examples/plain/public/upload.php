<?php

declare(strict_types=1);

require __DIR__ . '/../src/page.php';

if ($_SERVER['REQUEST_METHOD'] !== 'POST') {
    page('Upload', <<<'HTML'
        <form method="post" enctype="multipart/form-data">
            <input type="file" name="files[]" multiple required> <button>Send</button>
        </form>
        HTML);
    return;
}

$files = [];
foreach ($_FILES['files']['tmp_name'] ?? [] as $i => $temporary) {
    $error = $_FILES['files']['error'][$i];
    $files[] = [
        'name' => $_FILES['files']['name'][$i],
        'error' => $error,
        'bytes' => $_FILES['files']['size'][$i],
        'sha256' => $error === UPLOAD_ERR_OK ? hash_file('sha256', $temporary) : null,
    ];
}

http_response_code($files === [] ? 400 : 200);
header('Content-Type: application/json');
echo json_encode(['files' => $files], JSON_PRETTY_PRINT | JSON_THROW_ON_ERROR), "\n";
