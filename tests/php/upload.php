<?php
// PHP's view of an upload: contents by hash, paths of the temporary files, exceeded limits.
header('Content-Type: application/json');
$files = [];
foreach ($_FILES as $field => $file) {
    foreach ((array) $file['tmp_name'] as $i => $path) {
        $files[] = [
            'field' => $field,
            'name' => ((array) $file['name'])[$i],
            'error' => ((array) $file['error'])[$i],
            'size' => ((array) $file['size'])[$i],
            'path' => $path,
            'uploaded' => is_uploaded_file($path),
            'sha256' => $path !== '' ? hash_file('sha256', $path) : null,
        ];
    }
}
echo json_encode([
    'files' => $files,
    'post' => $_POST,
    'peak' => memory_get_peak_usage(true),
    'last_error' => error_get_last()['message'] ?? null,
]);
